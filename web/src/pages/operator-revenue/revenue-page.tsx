import { Link } from '@tanstack/react-router';

import { getFile, useGet } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Count, Money } from '../../components/figures.tsx';
import { FilterRow, Select } from '../../components/form.tsx';
import { Page, Panel, Tiles } from '../../components/page.tsx';
import { SaveButton } from '../../components/save-button.tsx';
import { EmptyState, Loaded, Note } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import { revenueRoute } from './routes.ts';
import type { OperatorRevenueTexts } from './messages/en.ts';

type Revenue = Got<'/v1/admin/revenue'>['data'][number];
const groups = ['model', 'account', 'tier', 'month'] as const;
type By = (typeof groups)[number];

const monthsBack = 24;

/** The months of UTC that can be asked for, newest first: `2027-06`. */
const months = (): readonly string[] => {
  const now = new Date();
  return Array.from({ length: monthsBack }, (_, back) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back)).toISOString().slice(0, 7),
  );
};

/** What was charged across accounts, what it cost, and what is left. */
export default function RevenuePage() {
  const t = useText<OperatorRevenueTexts>('operator-revenue');
  const { by = 'model', month } = revenueRoute.useSearch() as { readonly by?: By; readonly month?: string };
  const navigate = revenueRoute.useNavigate();
  const all = months();
  const shown = all.find((one) => one === month) ?? all[0]!;
  const query = { by, month: shown };
  // A month that is over stays as it is.
  const every = shown === all[0] ? 60_000 : undefined;
  const report = useGet('/v1/admin/revenue', { query }, { every, keepPrevious: true });
  const set = (changes: object): void =>
    void navigate({ search: { by: by === 'model' ? undefined : by, month, ...changes } as never, replace: true });
  return (
    <Page
      title={t('title')}
      lead={t('lead')}
      actions={
        <SaveButton name={`revenue-${shown}.csv`} load={() => getFile('/v1/admin/revenue.csv', { query })}>
          {t('export')}
        </SaveButton>
      }
    >
      <FilterRow>
        <Select
          label={t('month')}
          value={shown}
          options={all.map((value) => ({ value, text: value }))}
          onChange={({ target: { value } }) => set({ month: value === all[0] ? undefined : value })}
        />
        <Select
          label={t('by')}
          value={by}
          options={groups.map((value) => ({ value, text: t(value) }))}
          onChange={({ target: { value } }) => set({ by: value === 'model' ? undefined : value })}
        />
      </FilterRow>
      <Loaded of={report} lines={6}>
        {({ data }) => <Report of={by === 'month' ? data.toReversed() : data} by={by} />}
      </Loaded>
    </Page>
  );
}

/** A page stays quick: of thousands of accounts the export has all. */
const rowsMax = 500;

function Report({ of: rows, by }: { readonly of: readonly Revenue[]; readonly by: By }) {
  const t = useText<OperatorRevenueTexts>('operator-revenue');
  const sum = (read: (row: Revenue) => number): number => rows.reduce((all, row) => all + read(row), 0);
  const revenue = sum((row) => row.revenue_microcents);
  const priced = rows.filter(({ cost_microcents: cost }) => cost !== null);
  const margin = priced.reduce((all, row) => all + (row.margin_microcents ?? 0), 0);
  const columns: readonly Column<Revenue>[] = [
    { head: t(by), main: true, cell: (row) => <Name of={row} by={by} /> },
    { head: t('requests'), number: true, cell: ({ requests }) => <Count value={requests} /> },
    { head: t('input'), number: true, cell: ({ prompt_tokens: tokens }) => <Count value={tokens} /> },
    { head: t('cached'), number: true, cell: ({ cached_tokens: tokens }) => <Count value={tokens} /> },
    { head: t('output'), number: true, cell: ({ completion_tokens: tokens }) => <Count value={tokens} /> },
    { head: t('revenue'), number: true, cell: (row) => <Money microcents={row.revenue_microcents} /> },
    { head: t('uncharged'), number: true, cell: (row) => <Money microcents={row.uncharged_microcents} /> },
    { head: t('cost'), number: true, cell: (row) => <Amount of={row.cost_microcents} /> },
    { head: t('margin'), number: true, cell: (row) => <Amount of={row.margin_microcents} /> },
  ];
  return (
    <>
      <Tiles
        tiles={[
          { name: t('revenue'), value: <Money microcents={revenue} />, note: t('revenueNote') },
          { name: t('uncharged'), value: <Money microcents={sum((row) => row.uncharged_microcents)} /> },
          {
            name: t('margin'),
            value: priced.length === 0 ? '–' : <Money microcents={margin} />,
            note: t('marginNote', { n: priced.length, all: rows.length }),
          },
        ]}
      />
      {priced.length < rows.length && <Note>{t('noCosts')}</Note>}
      <Panel flush>
        <DataTable
          label={t('title')}
          columns={columns}
          list={wholeList(rows.slice(0, rowsMax))}
          keyOf={({ group }) => group}
          empty={<EmptyState title={t('empty')}>{t('emptyText')}</EmptyState>}
        />
      </Panel>
      {rows.length > rowsMax && <Note>{t('cut', { n: rowsMax, all: rows.length })}</Note>}
    </>
  );
}

const Amount = ({ of: amount }: { readonly of: number | null }) =>
  amount === null ? <>–</> : <Money microcents={amount} />;

function Name({ of: { group, name }, by }: { readonly of: Revenue; readonly by: By }) {
  if (by === 'account')
    return (
      <Link to={`/operator/accounts/${group}`} title={group}>
        {name ?? group}
      </Link>
    );
  // A tier from before there were tiers is not known.
  if (by === 'month' || by === 'tier') return <>{group || '–'}</>;
  return (
    <Link to="/operator/catalogue" search={{ model: group } as never}>
      {group}
    </Link>
  );
}
