import { useList } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Time } from '../../components/figures.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { formatCents } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { PdfButton } from './pdf-button.tsx';
import { isPayable, origins, states } from './topup.ts';
import type { Topup } from './topup.ts';
import type { BillingTexts } from './messages/en.ts';

/** Every attempt to pay, and what became of it. */
export function Payments({ pays }: { readonly pays: boolean }) {
  const t = useText<BillingTexts>('billing');
  const list = useList('/v1/credits/topups', undefined, { every: 5000 });
  const columns: readonly Column<Topup>[] = [
    { head: t('amount'), main: true, cell: ({ amount_cents: cents }) => formatCents(cents) },
    {
      head: t('state'),
      cell: ({ status, refunded_cents: back }) => (
        <>
          <Badge tone={states[status][1]}>{t(states[status][0])}</Badge>
          {status === 'paid' && back > 0 && ` ${t('partlyBack', { amount: formatCents(back) })}`}
        </>
      ),
    },
    { head: t('origin'), cell: ({ origin }) => t(origins[origin]) },
    { head: t('at'), cell: ({ created_at: at, paid_at: paid }) => <Time at={paid ?? at} /> },
    {
      head: t('receipt'),
      cell: (topup) =>
        topup.receipt_id !== null && pays ? (
          <PdfButton kind="receipts" id={topup.receipt_id} name={topup.receipt_id} />
        ) : pays && isPayable(topup) ? (
          <a href={topup.checkout_url}>{t('payNow')}</a>
        ) : (
          '–'
        ),
    },
  ];
  return (
    <DataTable
      label={t('payments')}
      columns={columns}
      list={list}
      keyOf={({ id }) => id}
      empty={<EmptyState title={t('noTopups')}>{t('noTopupsText')}</EmptyState>}
    />
  );
}
