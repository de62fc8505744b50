import { Link } from '@tanstack/react-router';

import { useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Money, Time } from '../../components/figures.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import type { BillingTexts } from './messages/en.ts';
import styles from './billing.module.css';

type Movement = Row<'/v1/ledger'>;

const kinds: Readonly<Record<Movement['type'], keyof BillingTexts>> = {
  topup: 'topup',
  grant: 'grant',
  refund: 'refund',
  adjustment: 'adjustment',
  chargeback: 'chargeback',
  expiry: 'expiry',
  usage: 'usage',
};

/** The ledger of the account, with the balance after each row. */
export function Movements() {
  const t = useText<BillingTexts>('billing');
  const list = useList('/v1/ledger', undefined, { every: 5000 });
  const columns: readonly Column<Movement>[] = [
    {
      head: t('what'),
      main: true,
      cell: ({ id, type, at, from, requests, reference }) => (
        <>
          {t(kinds[type])}
          {requests !== undefined && (
            <>
              {' · '}
              {/* The newest sum still grows. */}
              <Link to="/requests" search={{ from, to: id === list.rows[0]?.id ? undefined : at } as never}>
                {t('requests', { n: requests })}
              </Link>
            </>
          )}
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
