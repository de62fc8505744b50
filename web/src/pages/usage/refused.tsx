import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';

import { useKeyNames } from '../../api/known.ts';
import { useGet, useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import type { AppTexts } from '../../app/messages/en.ts';
import { Badge } from '../../components/badge.tsx';
import { Id } from '../../components/code.tsx';
import { Count, Time } from '../../components/figures.tsx';
import { Facts, Page, Panel } from '../../components/page.tsx';
import { EmptyState, Note, Skeleton } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import type { RequestFilter, Span } from './filter.ts';
import { KeyName } from './names.tsx';
import { useErrors } from './use-errors.ts';
import type { UsageTexts } from './messages/en.ts';
import styles from './usage.module.css';

type Refused = Row<'/v1/refusals'>;

/** How many requests were refused in a span. */
const useRefused = (filter: RequestFilter, span: Span): number => useErrors(filter, span)?.refused ?? 0;

/** Says that requests of the span were refused, which the list of receipts cannot show. */
export function RefusedNote({ filter, span }: { readonly filter: RequestFilter; readonly span: Span }) {
  const t = useText<UsageTexts>('usage');
  const refused = useRefused(filter, span);
  if (refused === 0 || filter.ending !== undefined) return null;
  return (
    <Note tone="warn">
      {t('refusedNote', { n: refused })}{' '}
      <Link to="/requests" search={{ ...filter, ending: 'refused' } as never}>
        {t('showThem')}
      </Link>
    </Note>
  );
}

/** The last refused requests, newest first, and how many there were in the span. */
export function RefusedList({ filter, span }: { readonly filter: RequestFilter; readonly span: Span }) {
  const t = useText<UsageTexts>('usage');
  const { model, key, error } = filter;
  const query = {
    ...(model === undefined ? {} : { model }),
    ...(key === undefined ? {} : { api_key_id: key }),
    ...(error === undefined ? {} : { error_code: error }),
  };
  // A refusal is kept some seconds after it was answered.
  const list = useList('/v1/refusals', { query }, { every: 5000 });
  // They are counted once a minute, and listed before that.
  const { start = 0, end = Infinity } = span;
  const listed = list.rows.filter(({ created_at: at }) => at >= start && at < end).length;
  const refused = Math.max(useRefused(filter, span), listed);
  const keyName = useKeyNames(list.rows.map(({ key_id: id }) => id));
  const columns: readonly Column<Refused>[] = [
    {
      head: t('when'),
      main: true,
      cell: ({ request_id: id, created_at: at }) => (
        <Link to={`/requests/${id}`}>
          <Time at={at} />
        </Link>
      ),
    },
    { head: t('model'), cell: ({ model: of }) => <div className={styles['model']}>{of ?? '–'}</div> },
    { head: t('key'), cell: ({ key_id: id }) => <KeyName id={id} name={keyName(id)} /> },
    {
      head: t('state'),
      cell: ({ error_code: code }) => (
        <span>
          <Badge tone="bad">{t('refused')}</Badge> <code>{code}</code>
        </span>
      ),
    },
    { head: t('answer'), cell: ({ message, meaning }) => <span lang="en">{message ?? meaning}</span> },
  ];
  return (
    <>
      <Note>
        <Count value={refused} /> {t('refusedLead')}
      </Note>
      <Panel flush>
        <DataTable
          label={t('refused')}
          columns={columns}
          list={list}
          keyOf={({ id }) => id}
          empty={<EmptyState title={t('noMatch')}>{t('noneRefused')}</EmptyState>}
        />
      </Panel>
    </>
  );
}

/** A request that has no receipt, because it was refused; or there is none. */
export function RefusedRequest({ id, crumb }: { readonly id: string; readonly crumb: ReactNode }) {
  const t = useText<UsageTexts>('usage');
  const ofApp = useText<AppTexts>('app');
  const { data, isPending } = useGet('/v1/refusals', { query: { id } });
  const found = data?.data[0];
  if (found === undefined)
    return (
      <Page title={t('noRequest')} crumb={crumb}>
        {isPending ? (
          <Skeleton lines={4} />
        ) : (
          <EmptyState title={t('noRequest')} action={<Link to="/requests">{t('requests')}</Link>}>
            {t('noRequestText')}
          </EmptyState>
        )}
      </Page>
    );
  const code = found.error_code;
  return (
    <Page
      title={t('request')}
      crumb={crumb}
      lead={
        <>
          <Badge tone="bad">{t('refused')}</Badge> <code>{code}</code> · HTTP {found.status}
        </>
      }
    >
      <Panel title={t('why')}>
        <div lang="en">
          {found.message !== null && <p>{found.message}</p>}
          <p>{found.meaning}</p>
          <p>
            <strong>{found.remedy}</strong>
          </p>
        </div>
        <a href={`/docs/errors/${code}`} target="_blank" rel="noopener">
          {ofApp('whatItMeans')}
        </a>
      </Panel>
      <Panel>
        <Facts
          facts={[
            [t('requestId'), <Id value={found.request_id} />],
            [t('when'), <Time at={found.created_at} />],
            [t('model'), found.model ?? '–'],
            [t('key'), <Link to={`/keys/${found.key_id}`}>{found.key_id}</Link>],
            [t('charge'), t('notCharged')],
          ]}
        />
      </Panel>
    </Page>
  );
}
