import { onlineManager, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';

import { ApiFailure } from '../api/client.ts';
import { useText } from '../i18n/text.ts';
import type { AppTexts } from './messages/en.ts';
import styles from './shell.module.css';

const askedEveryMs = 3000;

/** Says that the server does not answer, asks until it does, and then renews what is shown. */
export function OfflineBanner() {
  const t = useText<AppTexts>('app');
  const queries = useQueryClient();
  const [isOffline, setOffline] = useState(false);
  useEffect(() => {
    const ofBrowser = onlineManager.subscribe((online) => setOffline(!online));
    const ofQueries = queries.getQueryCache().subscribe(({ query }) => {
      const { error, status } = query.state;
      if (error instanceof ApiFailure && error.isOffline) setOffline(true);
      else if (status === 'success' && query.state.dataUpdatedAt > Date.now() - 1000) setOffline(false);
    });
    return () => {
      ofBrowser();
      ofQueries();
    };
  }, [queries]);
  useEffect(() => {
    if (!isOffline) return undefined;
    const timer = setInterval(() => {
      fetch('/healthz', { cache: 'no-store' })
        .then(({ ok }) => {
          if (!ok) return;
          setOffline(false);
          void queries.invalidateQueries();
        })
        .catch(() => {});
    }, askedEveryMs);
    return () => clearInterval(timer);
  }, [isOffline, queries]);
  return (
    <div role="status" className={isOffline ? styles['offline'] : 'visually-hidden'}>
      {isOffline ? t('offlineBanner') : ''}
    </div>
  );
}
