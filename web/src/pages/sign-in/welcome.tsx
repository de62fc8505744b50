import { useState } from 'react';

import { send } from '../../api/use-api.ts';
import { createPasskey, hasPasskeys } from '../../app/passkeys.ts';
import { Button } from '../../components/button.tsx';
import { CodeBlock } from '../../components/code.tsx';
import { Form, TextField } from '../../components/form.tsx';
import { ErrorNote, Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { useLinkToken } from './link-token.ts';
import { NewPassword } from './new-password.tsx';
import { OpenPage } from './open-page.tsx';
import { useWork } from './use-work.ts';
import type { SignInTexts } from './messages/en.ts';

/** Whoever opens the link of the first start becomes the operator of the server. */
export default function WelcomePage() {
  const t = useText<SignInTexts>('sign-in');
  const token = useLinkToken();
  const work = useWork();
  const [isOwner, setOwner] = useState(false);
  const create = (form: FormData): void =>
    work.run(async () => {
      const [name, email, password] = ['name', 'email', 'password'].map((field) => String(form.get(field)));
      await send('post', '/v1/owner', { body: { token, name: name!, email: email!, password: password! } });
      if (!hasPasskeys()) return location.assign('/');
      setOwner(true);
      return 'stays';
    });
  if (isOwner)
    return (
      <OpenPage title={t('ownerDone')} lead={t('passkeyOffer')}>
        {work.error !== undefined && <ErrorNote error={work.error} />}
        <Button
          look="primary"
          wide
          busy={work.isBusy}
          onClick={() => work.run(() => createPasskey().then(() => location.assign('/')))}
        >
          {t('addPasskey')}
        </Button>
        <Button wide onClick={() => location.assign('/')}>
          {t('later')}
        </Button>
      </OpenPage>
    );
  return (
    <OpenPage title={t('welcome')} lead={t('welcomeLead')}>
      {token === '' && <Note tone="warn">{t('noToken')}</Note>}
      <Form error={work.error} onSubmit={create}>
        <TextField name="name" label={t('name')} autoComplete="name" autoFocus maxLength={100} />
        <TextField name="email" label={t('email')} type="email" autoComplete="username" />
        <NewPassword />
        <Button type="submit" look="primary" wide busy={work.isBusy} disabled={token === ''}>
          {t('createOwner')}
        </Button>
      </Form>
      {(token === '' || work.error !== undefined) && (
        <div>
          <p>{t('newLink')}</p>
          <CodeBlock label={t('newLink')} code="npx tokenhouse owner link" />
        </div>
      )}
    </OpenPage>
  );
}
