import { Link } from '@tanstack/react-router';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';

import { send, useGet } from '../../api/use-api.ts';
import { hasPasskeys, NoPasskey, signInWithPasskey } from '../../app/passkeys.ts';
import { ownPath } from '../../app/next.ts';
import { Button } from '../../components/button.tsx';
import { Form, TextField } from '../../components/form.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { signInRoute } from './area.tsx';
import { OpenPage } from './open-page.tsx';
import type { SignInTexts } from './messages/en.ts';
import styles from './sign-in.module.css';

export default function SignInPage() {
  const t = useText<SignInTexts>('sign-in');
  const { next, sign_in: outcome } = signInRoute.useSearch();
  const queries = useQueryClient();
  const providers = useGet('/v1/auth/providers');
  const [needsCode, setNeedsCode] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();

  const finish = (): void => {
    queries.clear();
    // A new document: nothing of an earlier session is left in it.
    location.assign(ownPath(next));
  };
  const work = async (ask: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await ask();
    } catch (failure) {
      if (!(failure instanceof NoPasskey)) setError(failure);
      setBusy(false);
    }
  };
  const withPassword = (form: FormData): Promise<void> =>
    work(async () => {
      const body = { email: String(form.get('email')), password: String(form.get('password')) };
      const { two_factor_required: more } = await send('post', '/v1/auth/sign-in', { body });
      if (!more) return finish();
      setNeedsCode(true);
      setBusy(false);
    });
  const withCode = (form: FormData): Promise<void> =>
    work(async () => {
      const code = String(form.get('code')).trim();
      const body = /^\d{6}$/.test(code) ? { code } : { backup_code: code };
      await send('post', '/v1/auth/two-factor/verify', { body });
      finish();
    });
  const withProvider = (provider: string): Promise<void> =>
    work(async () => {
      const { url } = await send('post', '/v1/auth/oidc/{provider}', { params: { path: { provider } } });
      // The provider sends everybody back to the first page.
      sessionStorage.setItem('next', ownPath(next));
      location.assign(url);
    });

  if (needsCode)
    return (
      <OpenPage title={t('codeTitle')}>
        <Form error={error} onSubmit={(form) => void withCode(form)}>
          <TextField
            name="code"
            label={t('code')}
            hint={t('codeHint')}
            autoComplete="one-time-code"
            autoFocus
            spellCheck={false}
          />
          <Button type="submit" look="primary" wide busy={isBusy}>
            {t('signIn')}
          </Button>
        </Form>
      </OpenPage>
    );
  const others = providers.data?.data ?? [];
  return (
    <OpenPage title={t('signIn')}>
      {outcome === 'failed' && <Note tone="warn">{t('providerFailed')}</Note>}
      <Form error={error} onSubmit={(form) => void withPassword(form)}>
        <TextField name="email" label={t('email')} type="email" autoComplete="username" autoFocus />
        <TextField name="password" label={t('password')} type="password" autoComplete="current-password" />
        <Button type="submit" look="primary" wide busy={isBusy}>
          {t('signIn')}
        </Button>
      </Form>
      {(hasPasskeys() || others.length > 0) && (
        <div className={styles['others']}>
          <div className={styles['or']}>{t('or')}</div>
          {hasPasskeys() && (
            <Button wide busy={isBusy} onClick={() => void work(() => signInWithPasskey().then(finish))}>
              {t('passkey')}
            </Button>
          )}
          {others.map(({ id, name }) => (
            <Button key={id} wide busy={isBusy} onClick={() => void withProvider(id)}>
              {t('provider', { name })}
            </Button>
          ))}
        </div>
      )}
      <div className={styles['links']}>
        <a href="/forgot-password">{t('forgot')}</a>
        {providers.data?.sign_up === 'open' ? (
          <span>
            {t('signUpQuestion')} <Link to="/sign-up">{t('signUp')}</Link>
          </span>
        ) : (
          <span>{t('invitationOnly')}</span>
        )}
      </div>
    </OpenPage>
  );
}
