import { Link, useNavigate } from '@tanstack/react-router';
import { lazy, Suspense } from 'react';
import type { ReactNode } from 'react';

import { mayMakeKeys, useSession } from '../../api/session.ts';
import { useGet } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { LinkButton } from '../../components/button.tsx';
import { useErrorTile } from '../../components/error-tile.tsx';
import { Money } from '../../components/figures.tsx';
import { Page, Panel, Tiles } from '../../components/page.tsx';
import { EmptyState, ErrorNote, Loaded, Skeleton } from '../../components/state.tsx';
import { formatDay } from '../../format/date.ts';
import { formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { LatestRequests } from './latest-requests.tsx';
import { reportBuckets, reportDays, reportStart, spendOf } from './spend.ts';
import type { Costs } from './spend.ts';
import type { OverviewTexts } from './messages/en.ts';

const BarChart = lazy(() => import('../../components/charts.tsx').then((charts) => ({ default: charts.BarChart })));

export default function OverviewPage() {
  const t = useText<OverviewTexts>('overview');
  const { account, may } = useSession();
  // Without an account there is nothing to show; the shell says so.
  if (account === undefined) return <Page title={t('title')}>{null}</Page>;
  const actions = (
    <>
      <LinkButton to="/start">{t('start')}</LinkButton>
      {may(mayMakeKeys) && (
        <LinkButton look="primary" to="/keys" search={{ create: true } as never}>
          {t('createKey')}
        </LinkButton>
      )}
    </>
  );
  return (
    <Page title={t('title')} lead={account.name} actions={actions}>
      <Figures />
    </Page>
  );
}

function Figures() {
  const t = useText<OverviewTexts>('overview');
  const credits = useGet('/v1/credits', undefined, { every: 5000 });
  const costs = useGet(
    '/v1/costs',
    { query: { start_time: reportStart(Date.now()), group_by: ['model'], limit: reportBuckets } },
    { every: 15_000, keepPrevious: true },
  );
  const requests = useGet('/v1/generations', { query: { limit: 10 } }, { every: 5000 });
  if (costs.data === undefined || requests.data === undefined) {
    const error = costs.error ?? requests.error;
    if (error === null) return <Skeleton lines={8} />;
    const retry = (): void => void Promise.all([costs.refetch(), requests.refetch()]);
    return <ErrorNote error={error} onRetry={retry} />;
  }
  const isUnused = requests.data.data.length === 0 && costs.data.data.every(({ results }) => results.length === 0);
  return (
    <>
      <Loaded of={credits}>{(found) => <FigureTiles credits={found} costs={costs.data} />}</Loaded>
      {isUnused ? (
        <Panel>
          <EmptyState title={t('unused')} action={<LinkButton to="/start">{t('firstRequest')}</LinkButton>}>
            {t('unusedText')}
          </EmptyState>
        </Panel>
      ) : (
        <>
          <SpendChart of={costs.data} />
          <LatestRequests rows={requests.data.data} />
        </>
      )}
    </>
  );
}

interface FigureTilesProps {
  readonly credits: Got<'/v1/credits'>;
  readonly costs: Costs;
}

function FigureTiles({ credits, costs }: FigureTilesProps) {
  const t = useText<OverviewTexts>('overview');
  const { today, month } = spendOf(costs);
  const errors = useErrorTile({});
  return (
    <Tiles
      tiles={[
        {
          name: t('available'),
          value: <Money microcents={credits.available_microcents} />,
          note: t('ofBalance', { amount: formatMoney(credits.balance_microcents) }),
        },
        {
          name: t('held'),
          value: <Money microcents={credits.held_microcents} />,
          note: t('heldBy', { n: credits.held_requests }),
        },
        {
          name: t('today'),
          value: (
            <Requests since="today">
              <Money microcents={today} />
            </Requests>
          ),
        },
        {
          name: t('month'),
          value: (
            <Requests since="month">
              <Money microcents={month} />
            </Requests>
          ),
          note: t('zone', { zone: costs.time_zone }),
        },
        errors,
      ]}
    />
  );
}

/** The list behind a figure. */
const Requests = ({ since, children }: { readonly since: string; readonly children: ReactNode }) => (
  <Link to="/requests" search={{ since } as never}>
    {children}
  </Link>
);

function SpendChart({ of }: { readonly of: Costs }) {
  const t = useText<OverviewTexts>('overview');
  const navigate = useNavigate();
  const { days, series } = spendOf(of, t('otherModels'));
  const open = (label: number): void => {
    const from = days[label];
    // Today goes on until now.
    const to = label === days.length - 1 ? undefined : days[label + 1];
    void navigate({ to: '/requests', search: { from, to } as never });
  };
  return (
    <Panel
      title={t('chart', { days: reportDays })}
      actions={
        <LinkButton small to="/usage">
          {t('usage')}
        </LinkButton>
      }
    >
      <Suspense fallback={<Skeleton lines={6} />}>
        <BarChart
          title={t('chart', { days: reportDays })}
          labels={days.map((at) => formatDay(at, of.time_zone))}
          series={series}
          format={(microcents) => formatMoney(Math.round(microcents))}
          onSelect={open}
        />
      </Suspense>
    </Panel>
  );
}
