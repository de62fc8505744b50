import { Link } from '@tanstack/react-router';

import { chooseAccount } from '../../api/account-choice.ts';
import { send } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Form, TextField } from '../../components/form.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { useLinkToken } from './link-token.ts';
import { NewPassword } from './new-password.tsx';
import { OpenPage } from './open-page.tsx';
import { useWork } from './use-work.ts';
import type { SignInTexts } from './messages/en.ts';

/** Somebody new gives a name and a password; somebody who has signed in here before signs in first, and leaves both empty. */
export default function InvitationPage() {
  const t = useText<SignInTexts>('sign-in');
  const token = useLinkToken();
  const work = useWork();
  const accept = (form: FormData): void =>
    work.run(async () => {
      const [name, password] = ['name', 'password'].map((field) => String(form.get(field)));
      const body = {
        token,
        ...(name === '' ? {} : { name: name! }),
        ...(password === '' ? {} : { password: password! }),
      };
      const { account_id: accountId } = await send('post', '/v1/invites/accept', { body });
      chooseAccount(accountId);
      location.assign('/');
    });
  return (
    <OpenPage title={t('invitedTitle')} lead={t('invitedLead')}>
      {token === '' && <Note tone="warn">{t('noToken')}</Note>}
      <Form error={work.error} onSubmit={accept}>
        <TextField name="name" label={t('name')} autoComplete="name" optional maxLength={100} />
        <NewPassword optional />
        <Button type="submit" look="primary" wide busy={work.isBusy} disabled={token === ''}>
          {t('accept')}
        </Button>
      </Form>
      <p>
        {t.rich('invitedKnown', {
          link: (words) => (
            // In a new tab: the link in this one is used once.
            <Link to="/sign-in" target="_blank">
              {words}
            </Link>
          ),
        })}
      </p>
    </OpenPage>
  );
}
