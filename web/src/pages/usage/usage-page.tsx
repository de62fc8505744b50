import { Link } from '@tanstack/react-router';
import { lazy, Suspense } from 'react';
import type { ReactNode } from 'react';

import { mayPay, useSession } from '../../api/session.ts';
import { getFile, useGet } from '../../api/use-api.ts';
import { LinkButton } from '../../components/button.tsx';
import { Count, Money } from '../../components/figures.tsx';
import { Select } from '../../components/form.tsx';
import { Page, Panel, Tiles } from '../../components/page.tsx';
import { SaveButton } from '../../components/save-button.tsx';
import { EmptyState, Loaded, Note, Skeleton } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { topSeries } from '../../components/series.ts';
import { formatMoney } from '../../format/money.ts';
import { formatMilliseconds, formatNumber, formatPercent } from '../../format/number.ts';
import { useNow } from '../../components/use-now.ts';
import { useText } from '../../i18n/text.ts';
import { usageRoute } from './routes.ts';
import { DetailsSince } from './details-since.tsx';
import { bucketLabel, bucketsMax, isNarrow, reportQuery, spanBefore, widthOf, isWithin } from './filter.ts';
import type { RequestFilter, Span, UsageFilter } from './filter.ts';
import { Filters } from './filters.tsx';
import { KeyName, Name, useNames } from './names.tsx';
import { figures, groupingNames, groupings } from './groupings.ts';
import type { Figure, Grouping } from './groupings.ts';
import { firstUsed, groupsOf, sumsOf } from './sums.ts';
import type { Group, Report } from './sums.ts';
import { useErrors } from './use-errors.ts';
import { useSpan } from './use-span.ts';
import type { UsageTexts } from './messages/en.ts';

const BarChart = lazy(() => import('../../components/charts.tsx').then((charts) => ({ default: charts.BarChart })));

const nobodyTexts: Readonly<Partial<Record<Grouping, keyof UsageTexts>>> = { person: 'nobody' };
const figureTexts: Readonly<Record<Figure, keyof UsageTexts>> = {
  cost: 'charged',
  requests: 'requests',
  input: 'input',
  output: 'output',
};
const groupingTexts: Readonly<Record<Grouping, keyof UsageTexts>> = {
  model: 'model',
  key: 'key',
  person: 'person',
  tag: 'tag',
  tier: 'tier',
  ending: 'state',
};

export default function UsagePage() {
  const t = useText<UsageTexts>('usage');
  const { account, may } = useSession();
  const { by = 'model', show = 'cost', ...filter } = usageRoute.useSearch() as UsageFilter;
  const navigate = usageRoute.useNavigate();
  const inZone = useSpan(filter);
  // Without an account there is nothing to show; the shell says so.
  if (account === undefined) return <Page title={t('usage')}>{null}</Page>;
  if (inZone === undefined)
    return (
      <Page title={t('usage')}>
        <Skeleton lines={8} />
      </Page>
    );
  const { span, zone } = inZone;
  const shown: Shown = { filter, span, zone, by, show };
  const set = (changes: UsageFilter): void => void navigate({ search: { ...filter, by, show, ...changes } as never });
  const actions = (
    <SaveButton name="usage.csv" load={() => getFile('/v1/export/usage.csv', { query: queryOf(shown) })}>
      {t('export')}
    </SaveButton>
  );
  return (
    <Page title={t('usage')} lead={t('usageLead', { zone })} actions={actions}>
      <Filters filter={filter} span={span} zone={zone} onChange={set}>
        <Select
          label={t('by')}
          value={by}
          options={groupingNames.map((one) => ({ value: one, text: t(groupingTexts[one]) }))}
          onChange={(event) => set({ by: event.target.value as Grouping })}
        />
        <Select
          label={t('show')}
          value={show}
          options={figures.map((one) => ({ value: one, text: t(figureTexts[one]) }))}
          onChange={(event) => set({ show: event.target.value as Figure })}
        />
      </Filters>
      {!may(mayPay) && <Note>{by === 'key' || by === 'person' ? t('ownGroups') : t('ownRequests')}</Note>}
      <DetailsSince span={span} />
      <Totals of={shown} />
      <Latencies of={shown} />
      <Groups of={shown} />
    </Page>
  );
}

interface Shown {
  readonly filter: RequestFilter;
  readonly span: Span;
  readonly zone: string;
  readonly by: Grouping;
  readonly show: Figure;
}

const pageOf = ({ span }: Shown) => ({ bucket_width: widthOf(span), limit: bucketsMax[widthOf(span)] });
const queryOf = (shown: Shown) => ({
  ...reportQuery(shown.filter, shown.span),
  bucket_width: widthOf(shown.span),
  group_by: [groupings[shown.by]],
});

/** A figure that opens the requests behind it. */
function Behind({ search, children }: { readonly search: RequestFilter; readonly children: ReactNode }) {
  return (
    <Link to="/requests" search={search as never}>
      {children}
    </Link>
  );
}

/** The sums of the period before, as far as it had lasted by now; undefined where there is nothing to compare with. */
function useSumsBefore({ filter, span, zone }: Shown) {
  // Not another question each second.
  const now = Math.floor(useNow(comparedEveryMs) / comparedEveryMs) * (comparedEveryMs / 1000);
  const before = spanBefore(filter, span, now, zone);
  const width = before === undefined ? '1d' : widthOf(before);
  const query = { ...reportQuery(filter, before ?? span), bucket_width: width, limit: bucketsMax[width] };
  const report = useGet('/v1/usage', { query }, { enabled: before !== undefined, keepPrevious: true }).data;
  const sums = report === undefined || report.has_more ? undefined : sumsOf(report);
  return before === undefined || sums?.requests === 0 ? undefined : sums;
}

const comparedEveryMs = 300_000;

/** `+12 %` beside what it was. */
function Change({ from, to, was }: { readonly from: number; readonly to: number; readonly was: ReactNode }) {
  const t = useText<UsageTexts>('usage');
  if (from === 0) return null;
  const share = (to - from) / from;
  return (
    <span>
      {share > 0 ? '+' : ''}
      {formatPercent(share)} · {t('before')} {was}
    </span>
  );
}

/** Of all that the filter means, whatever it is divided by. */
function Totals({ of: shown }: { readonly of: Shown }) {
  const t = useText<UsageTexts>('usage');
  const query = { ...reportQuery(shown.filter, shown.span), ...pageOf(shown) };
  const options = { every: 15_000, keepPrevious: true };
  const report = useGet('/v1/usage', { query }, options);
  const costs = useGet('/v1/costs', { query }, options);
  const refunds = costs.data?.data
    .flatMap(({ results }) => results)
    .reduce((sum, { line_item: item, amount_microcents: amount }) => (item === 'refunds' ? sum + amount : sum), 0);
  const before = useSumsBefore(shown);
  const errors = useErrors(shown.filter, shown.span, 60_000);
  const lines = (...notes: readonly ReactNode[]) => {
    const shownNotes = notes.filter((note) => note !== undefined);
    return shownNotes.length === 0 ? {} : { note: shownNotes.map((note, at) => <div key={at}>{note}</div>) };
  };
  return (
    <Loaded of={report} lines={2}>
      {(found) => {
        const { requests, input, cached, output, reasoning, cost } = sumsOf(found);
        const failures = errors === undefined || errors.isPart ? 0 : errors.refused + errors.failed;
        const change = (to: number, from: number | undefined) =>
          from === undefined ? undefined : <Change from={from} to={to} was={<Count value={from} />} />;
        const behind = (content: ReactNode): ReactNode => <Behind search={shown.filter}>{content}</Behind>;
        return (
          <>
            {found.has_more && <Note tone="warn">{t('tooLong')}</Note>}
            <Tiles
              tiles={[
                {
                  name: t('charged'),
                  value: behind(<Money microcents={cost} />),
                  ...lines(
                    refunds === undefined || refunds === 0 ? undefined : (
                      <>
                        {t('refunded')}: <Money microcents={refunds} />
                      </>
                    ),
                    before && <Change from={before.cost} to={cost} was={<Money microcents={before.cost} />} />,
                  ),
                },
                {
                  name: t('requests'),
                  value: behind(<Count value={requests} />),
                  ...lines(
                    errors === undefined || failures === 0
                      ? undefined
                      : t('errorShare', { share: formatPercent(failures / (requests + errors.refused)) }),
                    change(requests, before?.requests),
                  ),
                },
                {
                  name: t('input'),
                  value: behind(<Count value={input} />),
                  ...lines(
                    cached === 0 ? undefined : `${t('ofThemCached', { n: cached })} (${formatPercent(cached / input)})`,
                    change(input, before?.input),
                  ),
                },
                {
                  name: t('output'),
                  value: behind(<Count value={output} />),
                  ...lines(
                    reasoning === 0 ? undefined : t('ofThemReasoning', { n: reasoning }),
                    change(output, before?.output),
                  ),
                },
              ]}
            />
          </>
        );
      }}
    </Loaded>
  );
}

/** The API reports a day more. */
const latencyDays = 365;

const latencyQueryOf = ({ filter, span }: Shown) => {
  const { tag, ...query } = reportQuery(filter, span);
  return { query, hasTag: tag !== undefined };
};

/** What half of the requests took at most, and all but a twentieth. */
function Latencies({ of: shown }: { readonly of: Shown }) {
  const t = useText<UsageTexts>('usage');
  const { query, hasTag } = latencyQueryOf(shown);
  const enabled = !hasTag && isWithin(latencyDays, shown.span);
  const { data } = useGet('/v1/latency', { query }, { every: 60_000, keepPrevious: true, enabled });
  const [all] = data?.data ?? [];
  if (!enabled || all === undefined) return null;
  const tile = (name: string, p50: number | null, p95: number | null) => ({
    name,
    value: timeText(p50),
    note: t('p95Note', { time: timeText(p95) }),
  });
  return (
    <Tiles
      tiles={[
        tile(t('firstTokenHalf'), all.first_token_p50_ms, all.first_token_p95_ms),
        tile(t('durationHalf'), all.total_p50_ms, all.total_p95_ms),
      ]}
    />
  );
}

const timeText = (ms: number | null | undefined): string =>
  ms === null || ms === undefined ? '–' : formatMilliseconds(ms);

/** Latencies of the groups, by their ids. Labels have none. */
function useLatencies(shown: Shown) {
  const { query, hasTag } = latencyQueryOf(shown);
  const { by } = shown;
  const enabled = !hasTag && by !== 'tag' && isWithin(latencyDays, shown.span);
  const group = by === 'tag' ? [] : [groupings[by]];
  const options = { every: 60_000, keepPrevious: true, enabled };
  const { data } = useGet('/v1/latency', { query: { ...query, group_by: group } }, options);
  if (!enabled) return undefined;
  return new Map((data?.data ?? []).map((row) => [row[groupings[by]], row]));
}

function Groups({ of: shown }: { readonly of: Shown }) {
  const t = useText<UsageTexts>('usage');
  const report = useGet(
    '/v1/usage',
    { query: { ...queryOf(shown), ...pageOf(shown) } },
    { every: 15_000, keepPrevious: true },
  );
  return (
    <Loaded of={report} lines={8}>
      {(found) => {
        const groups = groupsOf(found, shown.by, shown.show);
        if (groups.length === 0)
          return (
            <Panel>
              {isNarrow(shown.filter) || shown.by === 'tag' ? (
                <EmptyState title={t('noUsage')}>{t(shown.by === 'tag' ? 'noTags' : 'noMatchText')}</EmptyState>
              ) : (
                <EmptyState title={t('noUsage')} action={<LinkButton to="/start">{t('firstRequest')}</LinkButton>}>
                  {t('noUsageText')}
                </EmptyState>
              )}
            </Panel>
          );
        return (
          <>
            <Chart of={shown} report={found} groups={groups} />
            <GroupTable of={shown} groups={groups} />
          </>
        );
      }}
    </Loaded>
  );
}

interface GroupsProps {
  readonly of: Shown;
  readonly groups: readonly Group[];
}

function Chart({ of: { filter, by, show, zone, span }, report, groups }: GroupsProps & { readonly report: Report }) {
  const t = useText<UsageTexts>('usage');
  const navigate = usageRoute.useNavigate();
  const nameOf = useNames(
    by,
    groups.map(({ id }) => id),
  );
  const title = t('chart', { figure: t(figureTexts[show]), by: t(groupingTexts[by]) });
  // A first day does not look empty: the chart begins where the usage does.
  const first = firstUsed(groups);
  const open = (label: number): void => {
    const bucket = report.data[first + label]!;
    // The last one goes on until now, where the period does.
    const to = first + label === report.data.length - 1 ? span.end : bucket.end_time;
    void navigate({ to: '/requests', search: { ...filter, since: undefined, from: bucket.start_time, to } as never });
  };
  const series = groups.map(({ id, buckets }) => ({
    name: id === null ? t(nobodyTexts[by] ?? 'unknown') : (nameOf(id) ?? id),
    values: buckets.slice(first).map((sums) => sums[show]),
  }));
  const format = (value: number): string =>
    show === 'cost' ? formatMoney(Math.round(value)) : formatNumber(value, { maximumFractionDigits: 1 });
  return (
    <Panel title={title}>
      <Suspense fallback={<Skeleton lines={6} />}>
        <BarChart
          title={title}
          labels={report.data.slice(first).map(({ start_time: at }) => bucketLabel(at, widthOf(span), zone))}
          series={topSeries(series, t('others'))}
          format={format}
          onSelect={open}
        />
      </Suspense>
    </Panel>
  );
}

function GroupTable({ of: shown, groups }: GroupsProps) {
  const t = useText<UsageTexts>('usage');
  const { filter, by } = shown;
  const latencies = useLatencies(shown);
  const nameOf = useNames(
    by,
    groups.map(({ id }) => id),
  );
  const behind = ({ id }: Group, content: ReactNode): ReactNode =>
    // Requests of no person have no filter of their own.
    id === null ? content : <Behind search={{ ...filter, [by === 'person' ? 'user' : by]: id }}>{content}</Behind>;
  const figure = (head: string, name: Exclude<keyof Group['sums'], 'cost'>): Column<Group> => ({
    head,
    number: true,
    cell: ({ sums }) => <Count value={sums[name]} />,
  });
  const columns: readonly Column<Group>[] = [
    {
      head: t(groupingTexts[by]),
      main: true,
      cell: (group) => {
        const { id } = group;
        if (id === null) return t(nobodyTexts[by] ?? 'unknown');
        return behind(group, by === 'key' ? <KeyName id={id} name={nameOf(id)} /> : <Name of={nameOf(id) ?? id} />);
      },
    },
    figure(t('requests'), 'requests'),
    figure(t('input'), 'input'),
    figure(t('cached'), 'cached'),
    figure(t('output'), 'output'),
    figure(t('reasoning'), 'reasoning'),
    { head: t('charged'), number: true, cell: ({ sums }) => <Money microcents={sums.cost} /> },
    ...(latencies === undefined
      ? []
      : (['first_token', 'total'] as const).map((time): Column<Group> => ({
          head: `${t(time === 'total' ? 'duration' : 'firstToken')} (p50 / p95)`,
          number: true,
          cell: ({ id }) => {
            const of = latencies.get(id);
            return `${timeText(of?.[`${time}_p50_ms`])} / ${timeText(of?.[`${time}_p95_ms`])}`;
          },
        }))),
  ];
  return (
    <>
      <Panel flush>
        <DataTable
          label={t('usageBy', { by: t(groupingTexts[by]) })}
          columns={columns}
          list={wholeList(groups)}
          keyOf={({ id }) => id ?? ''}
          empty={null}
        />
      </Panel>
      {by === 'tag' && <p>{t('tagsOverlap')}</p>}
    </>
  );
}
