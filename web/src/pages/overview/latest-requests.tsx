import { Link } from '@tanstack/react-router';

import type { Row } from '../../api/use-api.ts';
import { LinkButton } from '../../components/button.tsx';
import { Ending } from '../../components/ending.tsx';
import { Charge, Count, Time } from '../../components/figures.tsx';
import { Panel } from '../../components/page.tsx';
import { ServedModel } from '../../components/served-model.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import type { OverviewTexts } from './messages/en.ts';

type Request = Row<'/v1/generations'>;

export function LatestRequests({ rows }: { readonly rows: readonly Request[] }) {
  const t = useText<OverviewTexts>('overview');
  const columns: readonly Column<Request>[] = [
    {
      head: t('model'),
      main: true,
      cell: (request) => (
        <Link to={`/requests/${request.id}`}>
          <ServedModel of={request} />
        </Link>
      ),
    },
    { head: t('state'), cell: (request) => <Ending of={request} /> },
    { head: t('input'), number: true, cell: ({ tokens_prompt: tokens }) => <Count value={tokens} /> },
    { head: t('output'), number: true, cell: ({ tokens_completion: tokens }) => <Count value={tokens} /> },
    { head: t('cost'), number: true, cell: ({ total_cost_microcents: cost }) => <Charge microcents={cost} /> },
    { head: t('when'), number: true, cell: ({ ended_at: at }) => <Time at={at} relative /> },
  ];
  return (
    <Panel
      title={t('latest')}
      flush
      actions={
        <LinkButton small to="/requests">
          {t('allRequests')}
        </LinkButton>
      }
    >
      <DataTable
        label={t('latest')}
        columns={columns}
        list={wholeList(rows)}
        keyOf={({ id }) => id}
        empty={<EmptyState title={t('noneOfYours')}>{t('noneOfYoursText')}</EmptyState>}
      />
    </Panel>
  );
}
