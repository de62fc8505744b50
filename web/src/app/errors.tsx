import { Link, useRouter } from '@tanstack/react-router';
import type { ErrorComponentProps } from '@tanstack/react-router';

import { ApiFailure } from '../api/client.ts';
import { Button, LinkButton } from '../components/button.tsx';
import { EmptyState, ErrorNote } from '../components/state.tsx';
import { Page } from '../components/page.tsx';
import { useText } from '../i18n/text.ts';
import type { AppTexts } from './messages/en.ts';

export function NotFoundPage() {
  const t = useText<AppTexts>('app');
  return (
    <Page title={t('notFound')} narrow>
      <EmptyState
        title={t('notFound')}
        action={
          <LinkButton look="primary" to="/">
            {t('toHome')}
          </LinkButton>
        }
      >
        {t('notFoundText')}
      </EmptyState>
    </Page>
  );
}

/** A page that has failed; the rest of the console goes on. A 404 of the API is a page that is not there. */
export function RouteError({ error, reset }: ErrorComponentProps) {
  const t = useText<AppTexts>('app');
  const router = useRouter();
  if (error instanceof ApiFailure && error.status === 404) return <NotFoundPage />;
  const again = (): void => {
    reset();
    void router.invalidate();
  };
  return (
    <Page title={t('errorTitle')} narrow>
      {!(error instanceof ApiFailure) && <p>{t('errorText')}</p>}
      <ErrorNote error={error} />
      <p>
        <Button look="primary" onClick={error instanceof ApiFailure ? again : () => location.reload()}>
          {error instanceof ApiFailure ? t('tryAgain') : t('reload')}
        </Button>{' '}
        <Link to="/">{t('toHome')}</Link>
      </p>
    </Page>
  );
}
