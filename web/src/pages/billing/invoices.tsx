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

type Invoice = Row<'/v1/invoices'>;

const kinds: Readonly<Record<Invoice['kind'], keyof BillingTexts>> = {
  statement: 'statement',
  credit_note: 'creditNote',
};

/** Monthly statements, and what corrects them. */
export function Invoices() {
  const t = useText<BillingTexts>('billing');
  const list = useList('/v1/invoices');
  const columns: readonly Column<Invoice>[] = [
    { head: t('number'), main: true, cell: ({ number }) => number },
    { head: t('what'), cell: ({ kind }) => t(kinds[kind]) },
    { head: t('month'), cell: ({ month }) => month },
    { head: t('issued'), cell: ({ issued_at: at }) => <Time at={at} dateOnly /> },
    { head: t('total'), number: true, cell: ({ total_cents: cents }) => formatCents(cents) },
    { head: t('document'), cell: ({ id, number }) => <PdfButton kind="invoices" id={id} name={number} /> },
  ];
  return (
    <DataTable
      label={t('invoices')}
      columns={columns}
      list={list}
      keyOf={({ id }) => id}
      empty={<EmptyState title={t('noInvoices')}>{t('noInvoicesText')}</EmptyState>}
    />
  );
}
