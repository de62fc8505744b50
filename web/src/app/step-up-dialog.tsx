import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';

import { ApiFailure } from '../api/client.ts';
import { meQuery } from '../api/session.ts';
import type { Session } from '../api/session.ts';
import { send } from '../api/use-api.ts';
import { Button } from '../components/button.tsx';
import { Dialog } from '../components/dialog.tsx';
import { Form, FormButtons, TextField } from '../components/form.tsx';
import { useText } from '../i18n/text.ts';
import type { AppTexts } from './messages/en.ts';
import { hasPasskeys, NoPasskey, signInWithPasskey } from './passkeys.ts';

interface StepUpDialogProps {
  readonly session: Session;
  /** Called once, with whether the person has signed in again. */
  readonly onEnd: (proved: boolean) => void;
}

/** Asks for the password once more, and for the code where there is one, when the API wants proof before a change. */
export function StepUpDialog({ session: { me }, onEnd }: StepUpDialogProps) {
  const t = useText<AppTexts>('app');
  const queries = useQueryClient();
  const [needsCode, setNeedsCode] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const end = (proved: boolean): void => {
    if (proved) void queries.invalidateQueries({ queryKey: meQuery.queryKey });
    onEnd(proved);
  };
  const work = async (ask: () => Promise<boolean>): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      if (await ask()) end(true);
    } catch (failure) {
      if (!(failure instanceof NoPasskey)) setError(failure);
    } finally {
      setBusy(false);
    }
  };
  const submit = (form: FormData): Promise<void> =>
    work(async () => {
      if (needsCode) {
        await send('post', '/v1/auth/two-factor/verify', { body: { code: String(form.get('code')) } });
        return true;
      }
      const body = { email: me.email, password: String(form.get('password')) };
      const { two_factor_required: more } = await send('post', '/v1/auth/sign-in', { body });
      setNeedsCode(more);
      return !more;
    });
  return (
    <Dialog title={t('prove')} onClose={() => end(false)}>
      <p>{t('proveHint')}</p>
      <Form error={error instanceof ApiFailure ? error : undefined} onSubmit={(form) => void submit(form)}>
        {needsCode ? (
          <TextField key="code" name="code" label={t('code')} inputMode="numeric" autoComplete="one-time-code" />
        ) : (
          <>
            <input type="hidden" name="email" autoComplete="username" value={me.email} readOnly />
            <TextField
              key="password"
              name="password"
              label={t('password')}
              type="password"
              autoComplete="current-password"
            />
          </>
        )}
        <FormButtons>
          {hasPasskeys() && !needsCode && (
            <Button busy={isBusy} onClick={() => void work(() => signInWithPasskey().then(() => true))}>
              {t('usePasskey')}
            </Button>
          )}
          <Button type="submit" look="primary" busy={isBusy}>
            {t('proveAction')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}
