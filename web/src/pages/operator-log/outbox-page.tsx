import { Link } from '@tanstack/react-router';

import { useGet, useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import type { Tone } from '../../components/badge.tsx';
import { CodeBlock } from '../../components/code.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Count, Time } from '../../components/figures.tsx';
import { FilterRow, Select } from '../../components/form.tsx';
import { Facts, Page, Panel } from '../../components/page.tsx';
import { EmptyState, Loaded, Note } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import { outboxRoute } from './routes.ts';
import type { OperatorLogTexts } from './messages/en.ts';
import styles from './operator-log.module.css';

type Mail = Row<'/v1/admin/outbox'>;

const states: Readonly<Record<Mail['state'], readonly [keyof OperatorLogTexts, Tone]>> = {
  waiting: ['waiting', 'warn'],
  sent: ['sent', 'good'],
  failed: ['failedMail', 'bad'],
};

export default function OutboxPage() {
  const t = useText<OperatorLogTexts>('operator-log');
  const { state, mail } = outboxRoute.useSearch();
  const navigate = outboxRoute.useNavigate();
  const list = useList('/v1/admin/outbox', { query: state === undefined ? {} : { state } }, { every: 5000 });
  const system = useGet('/v1/admin/system');
  const columns: readonly Column<Mail>[] = [
    {
      head: t('subject'),
      main: true,
      cell: ({ id, subject }) => (
        <div className={styles['clipped']}>
          <Link to="/operator/outbox" search={{ state, mail: id } as never}>
            {subject}
          </Link>
        </div>
      ),
    },
    {
      head: t('to'),
      cell: ({ to }) => (
        <div className={styles['clipped']} title={to}>
          {to}
        </div>
      ),
    },
    { head: t('kind'), cell: ({ kind }) => <code>{kind}</code> },
    {
      head: t('state'),
      cell: ({ state: now, last_error: error }) => (
        <>
          <Badge tone={states[now][1]}>{t(states[now][0])}</Badge>
          {error !== null && <div className={styles['error']}>{error}</div>}
        </>
      ),
    },
    { head: t('attempts'), number: true, cell: ({ attempts }) => <Count value={attempts} /> },
    { head: t('written'), cell: ({ created_at: at }) => <Time at={at} /> },
  ];
  return (
    <Page title={t('outbox')} lead={t('outboxLead')}>
      {system.data?.mail === 'outbox' && <Note>{t('notSent')}</Note>}
      <FilterRow>
        <Select
          label={t('state')}
          value={state ?? ''}
          options={[
            { value: '', text: t('all') },
            ...Object.entries(states).map(([value, [text]]) => ({ value, text: t(text) })),
          ]}
          onChange={({ target: { value } }) =>
            void navigate({ search: { state: value === '' ? undefined : value } as never, replace: true })
          }
        />
      </FilterRow>
      <Panel flush>
        <DataTable
          label={t('outbox')}
          columns={columns}
          list={list}
          keyOf={({ id }) => id}
          empty={
            state === undefined ? (
              <EmptyState title={t('noMail')}>{t('noMailText')}</EmptyState>
            ) : (
              <EmptyState title={t('noMatch')} />
            )
          }
        />
      </Panel>
      {mail !== undefined && (
        <MailDialog id={mail} onClose={() => void navigate({ search: { state } as never, replace: true })} />
      )}
    </Page>
  );
}

/** As text, whatever is in it: links in a mail open accounts. */
function MailDialog({ id, onClose }: { readonly id: string; readonly onClose: () => void }) {
  const t = useText<OperatorLogTexts>('operator-log');
  const mail = useGet('/v1/admin/outbox/{id}', { path: { id } }, { proves: true });
  return (
    <Dialog title={t('mail')} onClose={onClose} wide>
      <Loaded of={mail} lines={8}>
        {({ to, subject, created_at: at, text, account_id: account, state }) => (
          <div className={styles['mail']}>
            <Facts
              facts={[
                [t('to'), to],
                [t('subject'), subject],
                [t('written'), <Time at={at} full />],
                [t('state'), <Badge tone={states[state][1]}>{t(states[state][0])}</Badge>],
                [t('account'), account === null ? '–' : <Link to={`/operator/accounts/${account}`}>{account}</Link>],
              ]}
            />
            {text === null ? <Note>{t('textGone')}</Note> : <CodeBlock label={t('text')} code={text} wrap />}
          </div>
        )}
      </Loaded>
    </Dialog>
  );
}
