import type { UseQueryResult } from '@tanstack/react-query';

import type { Got } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Time } from '../../components/figures.tsx';
import { Panel } from '../../components/page.tsx';
import { Loaded } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorSystemTexts } from './messages/en.ts';
import styles from './operator-system.module.css';

type SourceList = Got<'/v1/admin/backend_sources'>;
type Source = SourceList['data'][number];

const kinds = { dns: 'dns', srv: 'srv', kubernetes: 'kubernetes', file: 'sourceFile', api: 'sourceApi' } as const;

/** Where backends come from that the configuration does not list. Most servers have none, and see nothing of it. */
export function Sources({ of: sources }: { readonly of: UseQueryResult<SourceList> }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  if (sources.data?.data.length === 0 || sources.isPending) return null;
  return (
    <Panel flush title={t('sources')}>
      <Loaded of={sources} lines={2}>
        {({ data }) => <SourceTable sources={data} />}
      </Loaded>
    </Panel>
  );
}

function SourceTable({ sources }: { readonly sources: readonly Source[] }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const columns: readonly Column<Source>[] = [
    {
      head: t('source'),
      main: true,
      cell: ({ model, name, by }) => (
        <div className={styles['backend']}>
          <span>
            {model} · {name}
          </span>
          <span>{t(kinds[by])}</span>
        </div>
      ),
    },
    {
      head: t('state'),
      cell: ({ problem }) => (
        <div className={styles['state']}>
          <Badge tone={problem === null ? 'good' : 'bad'}>{t(problem === null ? 'sourceWell' : 'sourceFails')}</Badge>
          {problem !== null && <span>{problem}</span>}
        </div>
      ),
    },
    { head: t('inUse'), number: true, cell: ({ listed, in_use: n }) => t('runningOf', { n, max: listed }) },
    { head: t('lastRead'), cell: ({ last_read_at: at }) => (at === null ? t('notYet') : <Time at={at} relative />) },
  ];
  return (
    <DataTable
      label={t('sources')}
      columns={columns}
      list={wholeList(sources)}
      keyOf={({ model, name }) => `${model} ${name}`}
      empty={null}
    />
  );
}
