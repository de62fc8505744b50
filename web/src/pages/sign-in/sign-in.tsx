import { Link } from '@tanstack/react-router';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';

import { send, useGet } from '../../api/use-api.ts';
import { hasPasskeys, signInWithPasskey } from '../../app/passkeys.ts';
import { ownPath, rememberNext, takeNext } from '../../app/next.ts';
import { Button } from '../../components/button.tsx';
import { Form, TextField } from '../../components/form.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { signInRoute } from './routes.ts';
import { OpenPage } from './open-page.tsx';
import { useWork } from './use-work.ts';
import type { SignInTexts } from './messages/en.ts';
import styles from './sign-in.module.css';

export default function SignInPage() {
  const t = useText<SignInTexts>('sign-in');
  const { next, sign_in: outcome } = signInRoute.useSearch();
  const queries = useQueryClient();
  const providers = useGet('/v1/auth/providers');
  const [needsCode, setNeedsCode] = useState(false);
  const work = useWork();

  const finish = (): void => {
    queries.clear();
    // Of a way to a provider that was not gone to its end.
    takeNext();
    // A new document: nothing of an earlier session is left in it.
    location.assign(ownPath(next));
  };
  const withPassword = (form: FormData): void =>
    work.run(async () => {
      const body = { email: String(form.get('email')), password: String(form.get('password')) };
      const { two_factor_required: more } = await send('post', '/v1/auth/sign-in', { body });
      if (!more) return finish();
      setNeedsCode(true);
      return 'stays';
    });
  const withCode = (form: FormData): void =>
    work.run(async () => {
      const code = String(form.get('code')).trim();
      const body = /^\d{6}$/.test(code) ? { code } : { backup_code: code };
      await send('post', '/v1/auth/two-factor/verify', { body });
      finish();
    });
  const withProvider = (provider: string): void =>
    work.run(async () => {
      const { url } = await send('post', '/v1/auth/oidc/{provider}', { params: { path: { provider } } });
      rememberNext(next);
      location.assign(url);
    });

  if (needsCode)
    return (
      <OpenPage title={t('codeTitle')}>
        <Form error={work.error} onSubmit={withCode}>
          <TextField
            name="code"
            label={t('code')}
            hint={t('codeHint')}
            autoComplete="one-time-code"
            autoFocus
            spellCheck={false}
          />
          <Button type="submit" look="primary" wide busy={work.isBusy}>
            {t('signIn')}
          </Button>
        </Form>
      </OpenPage>
    );
  const others = providers.data?.data ?? [];
  return (
    <OpenPage title={t('signIn')}>
      {outcome === 'failed' && <Note tone="warn">{t('providerFailed')}</Note>}
      <Form error={work.error} onSubmit={withPassword}>
        <TextField name="email" label={t('email')} type="email" autoComplete="username" autoFocus />
        <TextField name="password" label={t('password')} type="password" autoComplete="current-password" />
        <Button type="submit" look="primary" wide busy={work.isBusy}>
          {t('signIn')}
        </Button>
      </Form>
      {(hasPasskeys() || others.length > 0) && (
        <div className={styles['others']}>
          <div className={styles['or']}>{t('or')}</div>
          {hasPasskeys() && (
            <Button wide busy={work.isBusy} onClick={() => work.run(() => signInWithPasskey().then(finish))}>
              {t('passkey')}
            </Button>
          )}
          {others.map(({ id, name }) => (
            <Button key={id} wide busy={work.isBusy} onClick={() => withProvider(id)}>
              {t('provider', { name })}
            </Button>
          ))}
        </div>
      )}
      <div className={styles['links']}>
        <Link to="/forgot-password">{t('forgot')}</Link>
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
