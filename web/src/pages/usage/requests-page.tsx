import { Link } from '@tanstack/react-router';

import { useKeyNames } from '../../api/known.ts';
import { mayPay, useSession } from '../../api/session.ts';
import { getFile, useGet, useList, useRefresh } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Button, LinkButton } from '../../components/button.tsx';
import { Ending } from '../../components/ending.tsx';
import { Charge, Count, Money, Time } from '../../components/figures.tsx';
import { Page, Panel, Tiles } from '../../components/page.tsx';
import { SaveButton } from '../../components/save-button.tsx';
import { ServedModel } from '../../components/served-model.tsx';
import { EmptyState, Loaded, Note, Skeleton } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useNow } from '../../components/use-now.ts';
import { formatMilliseconds } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { requestsRoute } from './routes.ts';
import { DetailsSince } from './details-since.tsx';
import { isNarrow, reportQuery, requestQuery, hasSums } from './filter.ts';
import type { RequestFilter, Span } from './filter.ts';
import { Filters } from './filters.tsx';
import { KeyName } from './names.tsx';
import { RefusedList, RefusedNote } from './refused.tsx';
import { sumsOf } from './sums.ts';
import { useSpan } from './use-span.ts';
import type { UsageTexts } from './messages/en.ts';
import styles from './usage.module.css';

type Request = Row<'/v1/generations'>;

export default function RequestsPage() {
  const t = useText<UsageTexts>('usage');
  const { account } = useSession();
  const filter = requestsRoute.useSearch() as RequestFilter;
  const navigate = requestsRoute.useNavigate();
  const inZone = useSpan(filter);
  // Without an account there is nothing to show; the shell says so.
  if (account === undefined) return <Page title={t('requests')}>{null}</Page>;
  if (inZone === undefined)
    return (
      <Page title={t('requests')}>
        <Skeleton lines={8} />
      </Page>
    );
  const { span, zone } = inZone;
  const query = requestQuery(filter, span);
  const actions =
    filter.ending === 'refused' ? null : (
      <SaveButton name="requests.csv" load={() => getFile('/v1/export/generations.csv', { query })}>
        {t('export')}
      </SaveButton>
    );
  return (
    <Page title={t('requests')} lead={t('requestsLead', { zone })} actions={actions}>
      <Filters
        filter={filter}
        span={span}
        zone={zone}
        onChange={(search) => void navigate({ search: search as never })}
        withEndings
      />
      {filter.ending === 'refused' ? (
        <RefusedList filter={filter} span={span} />
      ) : (
        <>
          <DetailsSince span={span} />
          <RefusedNote filter={filter} span={span} />
          <SumTiles filter={filter} span={span} />
          <RequestList filter={filter} span={span} />
        </>
      )}
    </Page>
  );
}

interface Shown {
  readonly filter: RequestFilter;
  readonly span: Span;
}

/** Days of a page of the API. */
const daysMax = 366;

/** What the list adds up to, where the API has sums of it: not by error, and not for more than a year. */
function SumTiles({ filter, span }: Shown) {
  const t = useText<UsageTexts>('usage');
  const { may, me } = useSession();
  const isSummed = hasSums(filter, span);
  // The list has requests of their own keys alone.
  const own = may(mayPay) ? {} : { user_id: me.id };
  const report = useGet(
    '/v1/usage',
    { query: { ...reportQuery(filter, span), ...own, limit: daysMax } },
    { enabled: isSummed, keepPrevious: true },
  );
  if (!isSummed || report.data?.has_more === true) return null;
  return (
    <Loaded of={report} lines={2}>
      {(found) => {
        const { requests, input, cached, output, cost } = sumsOf(found);
        return (
          <Tiles
            tiles={[
              { name: t('requests'), value: <Count value={requests} /> },
              {
                name: t('input'),
                value: <Count value={input} />,
                ...(cached === 0 ? {} : { note: t('ofThemCached', { n: cached }) }),
              },
              { name: t('output'), value: <Count value={output} /> },
              { name: t('charged'), value: <Money microcents={cost} /> },
            ]}
          />
        );
      }}
    </Loaded>
  );
}

function RequestList({ filter, span }: Shown) {
  const t = useText<UsageTexts>('usage');
  const query = requestQuery(filter, span);
  const list = useList('/v1/generations', { query });
  const keyName = useKeyNames(list.rows.map(({ key_id: id }) => id));
  const columns: readonly Column<Request>[] = [
    {
      head: t('when'),
      main: true,
      cell: ({ id, ended_at: at }) => (
        <Link to={`/requests/${id}`}>
          <Time at={at} />
        </Link>
      ),
    },
    {
      head: t('model'),
      cell: (request) => (
        <div className={styles['model']}>
          <ServedModel of={request} />
          {request.tags.length > 0 && <div className={styles['tags']}>{request.tags.join(', ')}</div>}
        </div>
      ),
    },
    { head: t('key'), cell: ({ key_id: id }) => <KeyName id={id} name={keyName(id)} /> },
    { head: t('state'), cell: (request) => <Ending of={request} /> },
    // Before what may be cut off where names are long.
    { head: t('charged'), number: true, cell: ({ total_cost_microcents: cost }) => <Charge microcents={cost} /> },
    { head: t('input'), number: true, cell: ({ tokens_prompt: tokens }) => <Count value={tokens} /> },
    { head: t('output'), number: true, cell: ({ tokens_completion: tokens }) => <Count value={tokens} /> },
    { head: t('firstToken'), number: true, cell: ({ latency_ms: ms }) => (ms === null ? '–' : formatMilliseconds(ms)) },
    { head: t('duration'), number: true, cell: ({ total_ms: ms }) => formatMilliseconds(ms) },
  ];
  const empty = isNarrow(filter) ? (
    <EmptyState title={t('noMatch')}>{t('noMatchText')}</EmptyState>
  ) : (
    <EmptyState title={t('noRequests')} action={<LinkButton to="/start">{t('firstRequest')}</LinkButton>}>
      {t('noRequestsText')}
    </EmptyState>
  );
  return (
    <>
      {span.end === undefined && !list.isLoading && <NewOnes query={query} newest={list.rows[0]?.id} />}
      <Panel flush>
        <DataTable label={t('requests')} columns={columns} list={list} keyOf={({ id }) => id} empty={empty} />
      </Panel>
    </>
  );
}

const askedEveryMs = 5000;

/** The list stays as it is while one reads it; that there is something newer is said above. */
function NewOnes({
  query,
  newest,
}: {
  readonly query: ReturnType<typeof requestQuery>;
  readonly newest?: string | undefined;
}) {
  const t = useText<UsageTexts>('usage');
  const refresh = useRefresh();
  const begun = useNow(undefined);
  // The list itself has just been asked for.
  const enabled = useNow(askedEveryMs) > begun;
  const options = { every: askedEveryMs, enabled };
  const latest = useGet('/v1/generations', { query: { ...query, limit: 1 } }, options).data?.data[0]?.id;
  return (
    <div role="status">
      {latest !== undefined && latest !== newest && (
        <Note>
          {t('newOnes')}{' '}
          <Button small onClick={() => void refresh(['/v1/generations', '/v1/usage'])}>
            {t('showThem')}
          </Button>
        </Note>
      )}
    </div>
  );
}
