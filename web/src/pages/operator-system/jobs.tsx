import type { Got } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Time } from '../../components/figures.tsx';
import { Panel } from '../../components/page.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorSystemTexts } from './messages/en.ts';

type Job = Got<'/v1/admin/system'>['jobs'][number];

/** Work beside the requests: mail, alerts, sums of usage. */
export function Jobs({ of: jobs }: { readonly of: readonly Job[] }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const columns: readonly Column<Job>[] = [
    { head: t('job'), main: true, cell: ({ name }) => <code>{name}</code> },
    {
      head: t('lastSuccess'),
      cell: ({ last_success_at: at }) => (at === null ? t('notYet') : <Time at={at} relative />),
    },
    {
      head: t('failures'),
      number: true,
      cell: ({ failures }) => (failures === 0 ? '0' : <Badge tone="warn">{failures}</Badge>),
    },
  ];
  return (
    <Panel flush title={t('jobs')}>
      <DataTable label={t('jobs')} columns={columns} list={wholeList(jobs)} keyOf={({ name }) => name} empty={null} />
    </Panel>
  );
}
