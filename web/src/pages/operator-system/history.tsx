import { lazy, Suspense } from 'react';

import { useGet } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Select } from '../../components/form.tsx';
import { Columns, Panel } from '../../components/page.tsx';
import { seriesMax, topSeries } from '../../components/series.ts';
import type { ChartSeries } from '../../components/series.ts';
import { EmptyState, Loaded, Skeleton } from '../../components/state.tsx';
import { formatHour, formatMinute, timeZone } from '../../format/date.ts';
import { formatCompact, formatMilliseconds } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import type { OperatorSystemTexts } from './messages/en.ts';
import styles from './operator-system.module.css';
import { systemRoute } from './routes.ts';

const BarChart = lazy(() => import('../../components/charts.tsx').then((charts) => ({ default: charts.BarChart })));
const LineChart = lazy(() => import('../../components/charts.tsx').then((charts) => ({ default: charts.LineChart })));

type Step = Got<'/v1/admin/history'>['data'][number];
type Span = 'hour' | 'day' | 'week';
type By = 'total' | 'model' | 'backend';

const spanTexts = { hour: 'spanHour', day: 'spanDay', week: 'spanWeek' } as const;
const byTexts = { total: 'byTotal', model: 'byModel', backend: 'byBackend' } as const;

/** What the service did, from where the data begin. */
export function History() {
  const t = useText<OperatorSystemTexts>('operator-system');
  const { span = 'hour', by = 'total' } = systemRoute.useSearch() as { readonly span?: Span; readonly by?: By };
  const navigate = systemRoute.useNavigate();
  const options = { every: 30_000, keepPrevious: true };
  // The steps without traffic are in the whole alone.
  const whole = useGet('/v1/admin/history', { query: { span } }, options);
  const parts = useGet('/v1/admin/history', { query: { span, by } }, { ...options, enabled: by !== 'total' });
  const set = (changes: object): void =>
    void navigate({
      search: { span: span === 'hour' ? undefined : span, by: by === 'total' ? undefined : by, ...changes } as never,
      replace: true,
    });
  return (
    <Panel
      title={t('history')}
      actions={
        <>
          <Select
            label={t('span')}
            value={span}
            options={(['hour', 'day', 'week'] as const).map((value) => ({ value, text: t(spanTexts[value]) }))}
            onChange={({ target: { value } }) => set({ span: value === 'hour' ? undefined : value })}
          />
          <Select
            label={t('shown')}
            value={by}
            options={(['total', 'model', 'backend'] as const).map((value) => ({ value, text: t(byTexts[value]) }))}
            onChange={({ target: { value } }) => set({ by: value === 'total' ? undefined : value })}
          />
        </>
      }
    >
      <Loaded of={whole} lines={6}>
        {({ data: steps }) =>
          steps.every(({ requests }) => requests === 0) ? (
            <EmptyState title={t('noHistory')}>{t('noHistoryText')}</EmptyState>
          ) : (
            <Suspense fallback={<Skeleton lines={8} />}>
              {by === 'total' ? (
                <Whole steps={steps} span={span} />
              ) : (
                <Loaded of={parts} lines={6}>
                  {({ data }) => <Parts steps={steps} parts={data} span={span} by={by} />}
                </Loaded>
              )}
            </Suspense>
          )
        }
      </Loaded>
    </Panel>
  );
}

const labelsOf = (steps: readonly Step[], span: Span): readonly string[] =>
  steps.map(({ start_time: at }) => (span === 'week' ? formatHour(at, timeZone()) : formatMinute(at)));

const count = (value: number): string => formatCompact(value);

function Whole({ steps, span }: { readonly steps: readonly Step[]; readonly span: Span }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const labels = labelsOf(steps, span);
  const line = (name: string, read: (step: Step) => number | null): ChartSeries => ({
    name,
    values: steps.map((step) => read(step) ?? Number.NaN),
  });
  const times = [line('p50', (step) => step.first_token_p50_ms), line('p95', (step) => step.first_token_p95_ms)];
  const waits = [
    line(t('meanWait'), (step) => step.wait_mean_ms),
    line(t('longestWait'), (step) => step.wait_longest_ms),
  ];
  return (
    <Columns>
      <Chart title={t('requests')} labels={labels} series={[line(t('requests'), ({ requests }) => requests)]} />
      <Chart
        title={t('errors')}
        labels={labels}
        series={[line(t('refusedRequests'), ({ refused }) => refused), line(t('failed'), ({ failed }) => failed)]}
      />
      <Times title={t('firstToken')} labels={labels} series={times} />
      <Times title={t('waits')} labels={labels} series={waits} />
      <Chart
        title={t('outputSpeed')}
        labels={labels}
        series={[line(t('outputSpeed'), (step) => step.tokens_per_second)]}
      />
    </Columns>
  );
}

interface PartsProps {
  readonly steps: readonly Step[];
  readonly parts: readonly Step[];
  readonly span: Span;
  readonly by: By;
}

function Parts({ steps, parts, span, by }: PartsProps) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const labels = labelsOf(steps, span);
  const place = new Map(steps.map(({ start_time: at }, index) => [at, index]));
  const groups = new Map<string, Step[]>();
  for (const part of parts) {
    const name = nameOf(part);
    groups.set(name, [...(groups.get(name) ?? []), part]);
  }
  const busiest = [...groups].toSorted(([, one], [, other]) => requestsOf(other) - requestsOf(one));
  const shown = (name: string): string => (name === '' ? t('noModel') : name);
  const series = (read: (step: Step) => number | null, nothing: number): readonly ChartSeries[] =>
    busiest.map(([name, own]) => {
      const values = steps.map(() => nothing);
      for (const step of own) {
        const at = place.get(step.start_time);
        if (at !== undefined) values[at] = read(step) ?? nothing;
      }
      return { name: shown(name), values };
    });
  const stacked = (read: (step: Step) => number) => topSeries(series(read, 0), t('others'));
  // Of times there is no sum: those of the busiest.
  const apart = (read: (step: Step) => number | null) => series(read, Number.NaN).slice(0, seriesMax);
  return (
    <Columns>
      <Chart title={t('requests')} labels={labels} series={stacked(({ requests }) => requests)} />
      <Chart title={t('errors')} labels={labels} series={stacked(({ refused, failed }) => refused + failed)} />
      <Times title={`${t('firstToken')} (p95)`} labels={labels} series={apart((step) => step.first_token_p95_ms)} />
      {by === 'model' && <Times title={t('waits')} labels={labels} series={apart((step) => step.wait_mean_ms)} />}
      <Chart title={t('outputSpeed')} labels={labels} series={stacked((step) => step.tokens_per_second)} />
    </Columns>
  );
}

const nameOf = ({ model, backend }: Step): string => (backend === null ? (model ?? '') : `${model} · ${backend}`);
const requestsOf = (steps: readonly Step[]): number => steps.reduce((sum, { requests }) => sum + requests, 0);

interface OneChart {
  readonly title: string;
  readonly labels: readonly string[];
  readonly series: readonly ChartSeries[];
}

const Chart = (props: OneChart) => (
  <div className={styles['chart']}>
    <h3>{props.title}</h3>
    <BarChart {...props} format={count} />
  </div>
);
const Times = (props: OneChart) => (
  <div className={styles['chart']}>
    <h3>{props.title}</h3>
    <LineChart {...props} format={formatMilliseconds} />
  </div>
);
