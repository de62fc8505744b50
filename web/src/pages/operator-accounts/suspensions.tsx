import { useGet, useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Time } from '../../components/figures.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

type Suspension = Row<'/v1/admin/suspensions'>;

/** What the operator wrote when it was asked for. */
const reasonOf = ({ asked }: Suspension): string | undefined => {
  const reason: unknown = (asked as { readonly reason?: unknown } | null)?.reason;
  return typeof reason === 'string' ? reason : undefined;
};

/** Why an account is suspended. */
export function useLastSuspension(account: string): string | undefined {
  const { data } = useGet('/v1/admin/suspensions', { query: { account_id: account, limit: 1 } });
  const [last] = data?.data ?? [];
  return last === undefined ? undefined : reasonOf(last);
}

export function Suspensions({ account }: { readonly account: string }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const list = useList('/v1/admin/suspensions', { query: { account_id: account } });
  const columns: readonly Column<Suspension>[] = [
    {
      head: t('what'),
      main: true,
      cell: ({ action }) =>
        action === 'account.suspend' ? (
          <Badge tone="bad">{t('suspended')}</Badge>
        ) : (
          <Badge tone="good">{t('revived')}</Badge>
        ),
    },
    { head: t('reason'), cell: (row) => reasonOf(row) ?? '–' },
    { head: t('by'), cell: ({ actor }) => actor.name ?? actor.id ?? actor.kind },
    { head: t('at'), cell: ({ at }) => <Time at={at} /> },
  ];
  return (
    <DataTable
      label={t('suspensions')}
      columns={columns}
      list={list}
      keyOf={({ id }) => id}
      empty={<EmptyState title={t('noSuspensions')}>{t('noSuspensionsText')}</EmptyState>}
    />
  );
}
