import { useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Time } from '../../components/figures.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { formatCents } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { PdfButton } from './pdf-button.tsx';
import type { BillingTexts } from './messages/en.ts';

type Receipt = Row<'/v1/receipts'>;

const kinds: Readonly<Record<Receipt['kind'], keyof BillingTexts>> = {
  receipt: 'receipt',
  credit_note: 'creditNote',
  credit_note_reversal: 'creditNoteReversal',
};

/** Of payments, also those that an operator has recorded, and of their returns. */
export function Receipts() {
  const t = useText<BillingTexts>('billing');
  const list = useList('/v1/receipts');
  const columns: readonly Column<Receipt>[] = [
    { head: t('number'), main: true, cell: ({ number }) => number },
    { head: t('what'), cell: ({ kind }) => t(kinds[kind]) },
    { head: t('method'), cell: ({ method }) => method },
    { head: t('at'), cell: ({ paid_at: at }) => <Time at={at} /> },
    { head: t('total'), number: true, cell: ({ total_cents: cents }) => formatCents(cents) },
    { head: t('document'), cell: ({ id, number }) => <PdfButton kind="receipts" id={id} name={number} /> },
  ];
  return (
    <DataTable
      label={t('receipts')}
      columns={columns}
      list={list}
      keyOf={({ id }) => id}
      empty={<EmptyState title={t('noReceipts')}>{t('noReceiptsText')}</EmptyState>}
    />
  );
}
