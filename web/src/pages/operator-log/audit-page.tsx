import { Link } from '@tanstack/react-router';

import { useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import type { Tone } from '../../components/badge.tsx';
import { CodeBlock, Id } from '../../components/code.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Time } from '../../components/figures.tsx';
import { FilterRow } from '../../components/form.tsx';
import { Facts, Page, Panel } from '../../components/page.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import { auditRoute } from './routes.ts';
import type { OperatorLogTexts } from './messages/en.ts';
import styles from './operator-log.module.css';

type Entry = Row<'/v1/admin/audit'>;

const outcomes: Readonly<Record<Entry['outcome'], readonly [keyof OperatorLogTexts, Tone]>> = {
  done: ['done', 'good'],
  refused: ['refused', 'warn'],
  failed: ['failed', 'bad'],
  begun: ['begun', 'plain'],
};
const actors: Readonly<Record<Entry['actor']['kind'], keyof OperatorLogTexts>> = {
  user: 'user',
  key: 'key',
  cli: 'cli',
  system: 'system',
};

/** Every change on the server: of all accounts, and of the server itself. */
export default function AuditPage() {
  const t = useText<OperatorLogTexts>('operator-log');
  const { entry, ...filter } = auditRoute.useSearch();
  const { account, action, target } = filter;
  const navigate = auditRoute.useNavigate();
  const set = (changes: object): void => void navigate({ search: { ...filter, ...changes } as never, replace: true });
  const query = {
    ...(account === undefined ? {} : { account_id: account }),
    ...(action === undefined ? {} : { action: action.split(/[\s,]+/) }),
    ...(target === undefined ? {} : { target }),
  };
  const list = useList('/v1/admin/audit', { query }, { every: 10_000 });
  const opened = list.rows.find(({ id }) => id === entry);
  const columns: readonly Column<Entry>[] = [
    {
      head: t('change'),
      main: true,
      cell: ({ id, action: what }) => (
        <Link to="/operator/audit" search={{ ...filter, entry: id } as never}>
          <code>{what}</code>
        </Link>
      ),
    },
    {
      head: t('by'),
      cell: ({ actor }) => (
        <div className={styles['clipped']}>
          {actor.name ?? actor.id ?? ''} <small>{t(actors[actor.kind])}</small>
        </div>
      ),
    },
    {
      head: t('account'),
      cell: ({ account_id: id }) => (id === null ? '–' : <Link to={`/operator/accounts/${id}`}>{id}</Link>),
    },
    {
      head: t('outcome'),
      cell: ({ outcome }) => <Badge tone={outcomes[outcome][1]}>{t(outcomes[outcome][0])}</Badge>,
    },
    { head: t('at'), cell: ({ at }) => <Time at={at} /> },
  ];
  const isNarrow = account !== undefined || action !== undefined || target !== undefined;
  return (
    <Page title={t('audit')} lead={t('auditLead')}>
      <FilterRow>
        <SearchField label={t('accountId')} value={account} onChange={(typed) => set({ account: typed })} />
        <SearchField
          label={t('action')}
          hint={t('actionHint')}
          value={action}
          onChange={(typed) => set({ action: typed })}
        />
        <SearchField
          label={t('target')}
          hint={t('targetHint')}
          value={target}
          onChange={(typed) => set({ target: typed })}
        />
      </FilterRow>
      <Panel flush>
        <DataTable
          label={t('audit')}
          columns={columns}
          list={list}
          keyOf={({ id }) => id}
          empty={
            <EmptyState title={isNarrow ? t('noMatch') : t('noChanges')}>
              {isNarrow ? t('noMatchText') : t('noChangesText')}
            </EmptyState>
          }
        />
      </Panel>
      {opened !== undefined && <EntryDialog of={opened} onClose={() => set({})} />}
    </Page>
  );
}

function EntryDialog({ of: entry, onClose }: { readonly of: Entry; readonly onClose: () => void }) {
  const t = useText<OperatorLogTexts>('operator-log');
  const parts = [
    ['asked', entry.asked],
    ['before', entry.before],
    ['after', entry.after],
  ] as const;
  return (
    <Dialog title={entry.action} onClose={onClose} wide>
      <Facts
        facts={[
          [t('at'), <Time at={entry.at} full />],
          [
            t('by'),
            <>
              {entry.actor.name ?? '–'} {entry.actor.id !== null && <Id value={entry.actor.id} />}{' '}
              <small>{t(actors[entry.actor.kind])}</small>
            </>,
          ],
          [t('target'), entry.target === null ? '–' : <Id value={entry.target} />],
          [t('account'), entry.account_id === null ? '–' : <Id value={entry.account_id} />],
          [t('outcome'), <Badge tone={outcomes[entry.outcome][1]}>{t(outcomes[entry.outcome][0])}</Badge>],
          [t('address'), entry.address ?? '–'],
          [t('request'), entry.request_id === null ? '–' : <Id value={entry.request_id} />],
        ]}
      />
      {parts
        .filter(([, value]) => value !== null)
        .map(([name, value]) => (
          <section key={name} className={styles['part']}>
            <h3>{t(name)}</h3>
            <CodeBlock label={t(name)} code={JSON.stringify(value, null, 2)} wrap />
          </section>
        ))}
    </Dialog>
  );
}
