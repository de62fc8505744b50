import { useRouter } from '@tanstack/react-router';
import type { ErrorComponentProps } from '@tanstack/react-router';
import type { ReactNode } from 'react';

import { ApiFailure } from '../api/client.ts';
import { Button, LinkButton } from '../components/button.tsx';
import { ErrorNote, Note } from '../components/state.tsx';
import { Page } from '../components/page.tsx';
import { useText } from '../i18n/text.ts';
import type { AppTexts } from './messages/en.ts';

/** Nothing is here: at the address itself, or, with `error`, of what the API was asked for. */
export function NotFoundPage({ error }: { readonly error?: ApiFailure }) {
  const t = useText<AppTexts>('app');
  const router = useRouter();
  return (
    <Page title={t('notFound')} lead={t('notFoundText')} narrow>
      <Note>
        <code>{router.state.location.pathname}</code>
      </Note>
      {error !== undefined && <ErrorNote error={error} />}
      <WaysOut>
        <Button look="primary" onClick={() => router.history.back()}>
          {t('back')}
        </Button>
      </WaysOut>
    </Page>
  );
}

/** After what one does about it. */
const WaysOut = ({ children }: { readonly children: ReactNode }) => {
  const t = useText<AppTexts>('app');
  return (
    <p>
      {children} <LinkButton to="/">{t('toHome')}</LinkButton>
    </p>
  );
};

/** A page that has failed, inside the shell: the rest of the console goes on. A 404 of the API is a page that is not there. */
export function RouteError({ error, reset }: ErrorComponentProps) {
  const t = useText<AppTexts>('app');
  const router = useRouter();
  if (error instanceof ApiFailure && error.status === 404) return <NotFoundPage error={error} />;
  const again = (): void => {
    reset();
    void router.invalidate();
  };
  return (
    <Page title={t('errorTitle')} {...(error instanceof ApiFailure ? {} : { lead: t('errorText') })} narrow>
      <ErrorNote error={error} />
      <WaysOut>
        <Button look="primary" onClick={error instanceof ApiFailure ? again : () => location.reload()}>
          {error instanceof ApiFailure ? t('tryAgain') : t('reload')}
        </Button>
      </WaysOut>
    </Page>
  );
}
