import { useEffect, useState } from 'react';
import type { ReactNode } from 'react';

import { useGet, useRefresh } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { ErrorNote, Note } from '../../components/state.tsx';
import { useNow } from '../../components/use-now.ts';
import { formatCents } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { rememberedTopup } from './checkout.ts';
import { isPayable } from './topup.ts';
import type { BillingTexts } from './messages/en.ts';
import styles from './billing.module.css';

interface CheckoutReturnProps {
  /** Which of its two ways back the page of the payment provider has taken. */
  readonly outcome: 'done' | 'cancelled';
  readonly onClose: () => void;
}

const soonMs = 1000;
const laterMs = 10_000;
const longAfterMs = 60_000;
/** A failed payment may still be made on the same page of the provider. */
const isOpen = (status: string | undefined): boolean =>
  status === undefined || status === 'pending' || status === 'failed';

/** What has become of the payment. The way back proves nothing: the top-up says whether it is paid. */
export function CheckoutReturn({ outcome, onClose }: CheckoutReturnProps) {
  const t = useText<BillingTexts>('billing');
  const [id] = useState(rememberedTopup);
  const [openedAt] = useState(() => Date.now());
  const [every, setEvery] = useState<number | undefined>(soonMs);
  const isLong = useNow(soonMs) - openedAt > longAfterMs;
  const topup = useGet('/v1/credits/topups/{id}', { path: { id: id ?? '' } }, { enabled: id !== undefined, every });
  const refresh = useRefresh();
  const status = topup.data?.status;
  useEffect(() => setEvery(isOpen(status) ? (isLong ? laterMs : soonMs) : undefined), [status, isLong]);
  useEffect(() => {
    if (status !== undefined && status !== 'pending') void refresh(['/v1/credits', '/v1/ledger', '/v1/receipts']);
  }, [status, refresh]);
  if (topup.error !== null) return <ErrorNote error={topup.error} />;
  const close = (
    <Button small onClick={onClose}>
      {t('close')}
    </Button>
  );
  if (topup.data === undefined)
    return (
      <Said tone="plain" close={close}>
        {t(id === undefined ? 'backUnknown' : 'waiting')}
      </Said>
    );
  return <Outcome of={topup.data} outcome={outcome} isLong={isLong} close={close} />;
}

interface OutcomeProps {
  readonly of: Got<'/v1/credits/topups/{id}'>;
  readonly outcome: 'done' | 'cancelled';
  readonly isLong: boolean;
  readonly close: ReactNode;
}

function Outcome({ of: topup, outcome, isLong, close }: OutcomeProps) {
  const t = useText<BillingTexts>('billing');
  const amount = formatCents(topup.amount_cents);
  const again = isPayable(topup) && (
    <a className={styles['again']} href={topup.checkout_url}>
      {t('payNow')}
    </a>
  );
  if (topup.status === 'pending' && outcome === 'done')
    return (
      <Said tone="plain" close={close}>
        {t(isLong ? 'waitingLong' : 'waiting')}
      </Said>
    );
  if (topup.status === 'pending')
    return (
      <Said tone="warn" close={close} action={again}>
        {t('cancelledPayment', { amount })}
      </Said>
    );
  if (topup.status === 'paid')
    return (
      <Said tone="good" close={close}>
        {t('paidNow', { amount })}
      </Said>
    );
  return (
    <Said tone="warn" close={close} action={again}>
      {t(topup.status === 'failed' || topup.status === 'expired' ? 'notPaid' : 'givenBack', { amount })}
    </Said>
  );
}

interface SaidProps {
  readonly tone: 'plain' | 'good' | 'warn';
  readonly close: ReactNode;
  readonly action?: ReactNode;
  readonly children: string;
}

const Said = ({ tone, close, action, children }: SaidProps) => (
  <Note tone={tone}>
    <div className={styles['said']}>
      <span role="status">{children}</span>
      {action}
      {close}
    </div>
  </Note>
);
