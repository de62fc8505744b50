import { useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Money, Time } from '../../components/figures.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorAccountTexts } from './messages/en.ts';
import styles from './operator-accounts.module.css';

type Movement = Row<'/v1/admin/accounts/{id}/ledger'>;

const kinds: Readonly<Record<Movement['type'], keyof OperatorAccountTexts>> = {
  topup: 'topupMoved',
  grant: 'granted',
  refund: 'refunded',
  adjustment: 'adjusted',
  chargeback: 'chargedBack',
  expiry: 'expired',
  usage: 'usage',
};

/** The ledger of the account, with the balance after each row: amounts and counts, never what was asked. */
export function Movements({ account }: { readonly account: string }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const list = useList('/v1/admin/accounts/{id}/ledger', { path: { id: account } }, { every: 5000 });
  const columns: readonly Column<Movement>[] = [
    {
      head: t('what'),
      main: true,
      cell: ({ type, requests, reference }) => (
        <>
          {t(kinds[type])}
          {requests !== undefined && ` · ${t('requests', { n: requests })}`}
          {reference !== null && <div className={styles['reference']}>{reference}</div>}
        </>
      ),
    },
    { head: t('at'), cell: ({ at }) => <Time at={at} /> },
    { head: t('amount'), number: true, cell: ({ amount_microcents: sum }) => <Money microcents={sum} sign /> },
    { head: t('balanceAfter'), number: true, cell: ({ balance_after_microcents: sum }) => <Money microcents={sum} /> },
  ];
  return (
    <DataTable
      label={t('movements')}
      columns={columns}
      list={list}
      keyOf={({ id }) => id}
      empty={<EmptyState title={t('noMovements')}>{t('noMovementsText')}</EmptyState>}
    />
  );
}
