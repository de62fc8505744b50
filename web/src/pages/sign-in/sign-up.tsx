import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { send, useGet } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Form, TextField } from '../../components/form.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { NewPassword } from './new-password.tsx';
import { OpenPage } from './open-page.tsx';
import { useWork } from './use-work.ts';
import type { SignInTexts } from './messages/en.ts';

export default function SignUpPage() {
  const t = useText<SignInTexts>('sign-in');
  const providers = useGet('/v1/auth/providers');
  const work = useWork();
  const [sentTo, setSentTo] = useState<string>();
  const signUp = (form: FormData): void =>
    work.run(async () => {
      const [name, email, password] = ['name', 'email', 'password'].map((field) => String(form.get(field)));
      await send('post', '/v1/auth/sign-up', { body: { name: name!, email: email!, password: password! } });
      setSentTo(email);
      return 'stays';
    });
  if (sentTo !== undefined)
    return (
      <OpenPage title={t('mailSent')} lead={t('signUpSent', { email: sentTo })}>
        <Link to="/sign-in">{t('signIn')}</Link>
      </OpenPage>
    );
  return (
    <OpenPage title={t('signUp')}>
      {providers.data?.sign_up === 'invitation' && <Note tone="warn">{t('invitationOnly')}</Note>}
      <Form error={work.error} onSubmit={signUp}>
        <TextField name="name" label={t('name')} autoComplete="name" autoFocus maxLength={100} />
        <TextField name="email" label={t('email')} type="email" autoComplete="username" />
        <NewPassword />
        <Button
          type="submit"
          look="primary"
          wide
          busy={work.isBusy}
          disabled={providers.data?.sign_up === 'invitation'}
        >
          {t('signUp')}
        </Button>
      </Form>
      <Link to="/sign-in">{t('haveAccount')}</Link>
    </OpenPage>
  );
}
