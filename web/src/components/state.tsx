import type { ReactNode } from 'react';

import type { AppTexts } from '../app/messages/en.ts';
import { ApiFailure } from '../api/client.ts';
import { useText } from '../i18n/text.ts';
import { Button } from './button.tsx';
import { classes } from './classes.ts';
import { Id } from './code.tsx';
import styles from './state.module.css';

interface EmptyStateProps {
  readonly title: string;
  readonly children?: ReactNode;
  /** What to do about it. */
  readonly action?: ReactNode;
}

/** There is nothing yet, why, and the way to something. */
export function EmptyState({ title, children, action }: EmptyStateProps) {
  return (
    <div className={styles['empty']}>
      <strong>{title}</strong>
      {children !== undefined && <p>{children}</p>}
      {action}
    </div>
  );
}

/** What went wrong, in words, with its code, what explains it, and the id to quote. */
export function ErrorNote({ error, onRetry }: { readonly error: unknown; readonly onRetry?: () => void }) {
  const t = useText<AppTexts>('app');
  const failure = error instanceof ApiFailure ? error : undefined;
  const message = failure?.isOffline === true ? t('offline') : error instanceof Error ? error.message : String(error);
  return (
    <div className={styles['error']} role="alert">
      <p>{message}</p>
      {(failure !== undefined || onRetry !== undefined) && (
        <div className={styles['errorMeta']}>
          {failure !== undefined && !failure.isOffline && (
            <>
              <code>{failure.code}</code>
              {failure.docsUrl !== undefined && isOwnPage(failure.docsUrl) && (
                <a href={new URL(failure.docsUrl).pathname} target="_blank" rel="noopener">
                  {t('whatItMeans')}
                </a>
              )}
              {failure.requestId !== undefined && <Id value={failure.requestId} />}
            </>
          )}
          {onRetry !== undefined && (
            <Button small onClick={onRetry}>
              {t('tryAgain')}
            </Button>
          )}
        </div>
      )}
    </div>
  );
}

/** The pages of error codes are this host's, whatever name it has for the public. */
const isOwnPage = (url: string): boolean => URL.canParse(url) && new URL(url).pathname.startsWith('/docs/errors/');

export function Note({
  tone = 'plain',
  children,
}: {
  readonly tone?: 'plain' | 'warn' | 'good';
  readonly children: ReactNode;
}) {
  return <div className={classes(styles['note'], styles[tone])}>{children}</div>;
}

/** In the place of what is being loaded. */
export function Skeleton({ lines = 3 }: { readonly lines?: number }) {
  const t = useText<AppTexts>('app');
  return (
    <div className={styles['skeleton']} role="status" aria-label={t('loading')}>
      {Array.from({ length: lines }, (_, line) => (
        <div key={line} style={{ width: `${92 - ((line * 23) % 50)}%` }} />
      ))}
    </div>
  );
}

interface LoadedProps<Data> {
  readonly of: { readonly data: Data | undefined; readonly error: unknown; refetch(): unknown };
  readonly lines?: number;
  readonly children: (data: Data) => ReactNode;
}

/** What a query has found; before that a skeleton, or why there is nothing. */
export function Loaded<Data>({ of, lines, children }: LoadedProps<Data>) {
  if (of.data !== undefined) return <>{children(of.data)}</>;
  if (of.error !== null && of.error !== undefined)
    return <ErrorNote error={of.error} onRetry={() => void of.refetch()} />;
  return <Skeleton {...(lines === undefined ? {} : { lines })} />;
}
