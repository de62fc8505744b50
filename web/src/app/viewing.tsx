import { useQuery } from '@tanstack/react-query';

import type { Me } from '../api/session.ts';
import { meQuery } from '../api/session.ts';
import { useSend } from '../api/use-api.ts';
import { Button } from '../components/button.tsx';
import { Time } from '../components/figures.tsx';
import { ErrorNote } from '../components/state.tsx';
import { useText } from '../i18n/text.ts';
import type { AppTexts } from './messages/en.ts';
import styles from './viewing.module.css';

const askedEveryMs = 10_000;

/** Above every page while an operator views an account: whose it is, until when, and the way back. */
export function Viewing({ of: { account_id: id, name, until } }: { readonly of: NonNullable<Me['viewing']> }) {
  const t = useText<AppTexts>('app');
  // It ends by itself, or in another tab.
  useQuery({ ...meQuery, refetchInterval: askedEveryMs, staleTime: 0 });
  const leave = useSend('delete', '/v1/auth/view');
  return (
    <div className={styles['viewing']} role="status">
      <span>
        {t.rich('viewing', { b: (text) => <strong>{text}</strong> }, { name: name === '' ? id : name })}{' '}
        <small>
          {t('viewingUntil')} <Time at={until} />
        </small>
      </span>
      <Button small busy={leave.isPending} onClick={() => leave.mutate({}, { onSuccess: () => location.assign('/') })}>
        {t('leave')}
      </Button>
      {leave.error !== null && <ErrorNote error={leave.error} />}
    </div>
  );
}
