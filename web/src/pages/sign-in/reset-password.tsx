import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { send } from '../../api/use-api.ts';
import { Button, LinkButton } from '../../components/button.tsx';
import { Form } from '../../components/form.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { useLinkToken } from './link-token.ts';
import { NewPassword } from './new-password.tsx';
import { OpenPage } from './open-page.tsx';
import { useWork } from './use-work.ts';
import type { SignInTexts } from './messages/en.ts';

export default function ResetPasswordPage() {
  const t = useText<SignInTexts>('sign-in');
  const token = useLinkToken();
  const work = useWork();
  const [isDone, setDone] = useState(false);
  const reset = (form: FormData): void =>
    work.run(async () => {
      await send('post', '/v1/auth/password/reset', { body: { token, password: String(form.get('password')) } });
      setDone(true);
      return 'stays';
    });
  if (isDone)
    return (
      <OpenPage title={t('resetDone')} lead={t('resetDoneLead')}>
        <LinkButton look="primary" to="/sign-in">
          {t('signIn')}
        </LinkButton>
      </OpenPage>
    );
  return (
    <OpenPage title={t('resetTitle')} lead={t('resetLead')}>
      {token === '' && <Note tone="warn">{t('noToken')}</Note>}
      <Form error={work.error} onSubmit={reset}>
        <NewPassword />
        <Button type="submit" look="primary" wide busy={work.isBusy} disabled={token === ''}>
          {t('setPassword')}
        </Button>
      </Form>
      <Link to="/forgot-password">{t('askAgain')}</Link>
    </OpenPage>
  );
}
