import { useState } from 'react';

import { send } from '../../api/use-api.ts';
import { Button, LinkButton } from '../../components/button.tsx';
import { Form } from '../../components/form.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { useLinkToken } from './link-token.ts';
import { OpenPage } from './open-page.tsx';
import { useWork } from './use-work.ts';
import type { SignInTexts } from './messages/en.ts';

/** Not by opening it: programs that look into mails open links too. */
export default function VerifyEmailPage() {
  const t = useText<SignInTexts>('sign-in');
  const token = useLinkToken();
  const work = useWork();
  const [isDone, setDone] = useState(false);
  const verify = (): void =>
    work.run(async () => {
      await send('post', '/v1/auth/verify-email', { body: { token } });
      setDone(true);
      return 'stays';
    });
  return (
    <OpenPage title={isDone ? t('verified') : t('verifyTitle')} lead={isDone ? t('verifiedLead') : t('verifyLead')}>
      {isDone ? (
        <LinkButton look="primary" to="/sign-in">
          {t('continue')}
        </LinkButton>
      ) : (
        <>
          {token === '' && <Note tone="warn">{t('noToken')}</Note>}
          <Form error={work.error} onSubmit={verify}>
            <Button type="submit" look="primary" wide busy={work.isBusy} disabled={token === ''}>
              {t('confirm')}
            </Button>
          </Form>
        </>
      )}
    </OpenPage>
  );
}
