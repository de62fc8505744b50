import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { send } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Form, TextField } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import { OpenPage } from './open-page.tsx';
import { useWork } from './use-work.ts';
import type { SignInTexts } from './messages/en.ts';

export default function ForgotPasswordPage() {
  const t = useText<SignInTexts>('sign-in');
  const work = useWork();
  const [isSent, setSent] = useState(false);
  const ask = (form: FormData): void =>
    work.run(async () => {
      await send('post', '/v1/auth/password/forgot', { body: { email: String(form.get('email')) } });
      setSent(true);
      return 'stays';
    });
  return (
    <OpenPage title={isSent ? t('mailSent') : t('forgotTitle')} lead={isSent ? t('forgotSent') : t('forgotLead')}>
      {!isSent && (
        <Form error={work.error} onSubmit={ask}>
          <TextField name="email" label={t('email')} type="email" autoComplete="username" autoFocus />
          <Button type="submit" look="primary" wide busy={work.isBusy}>
            {t('sendLink')}
          </Button>
        </Form>
      )}
      <Link to="/sign-in">{t('backToSignIn')}</Link>
    </OpenPage>
  );
}
