import { Link } from '@tanstack/react-router';
import { useId } from 'react';

import { useMembers } from '../../api/known.ts';
import { mayManage, useSession } from '../../api/session.ts';
import { useGet, useList } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Time } from '../../components/figures.tsx';
import { controlClass, Field, Select } from '../../components/form.tsx';
import { Page, Panel } from '../../components/page.tsx';
import { EmptyState, Note } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useNow } from '../../components/use-now.ts';
import { startOfDay } from '../../format/date.ts';
import { useText } from '../../i18n/text.ts';
import { auditRoute } from './routes.ts';
import { Actor, EntryDialog, outcomes } from './entry-dialog.tsx';
import type { Entry } from './entry-dialog.tsx';
import type { AuditTexts } from './messages/en.ts';
import styles from './audit.module.css';

const periods = { today: 0, '7d': 6, '30d': 29, '90d': 89 } as const;
export default function AuditPage() {
  const t = useText<AuditTexts>('audit');
  const { account, may } = useSession();
  // Without an account there is nothing to show; the shell says so.
  if (account === undefined) return <Page title={t('title')}>{null}</Page>;
  return (
    <Page title={t('title')} lead={t('lead')}>
      {may(mayManage) ? <Log /> : <Note>{t('askManager')}</Note>}
    </Page>
  );
}

/** As the API is asked; undefined: the zone of the account is not known yet. */
function useQuery() {
  const { actor, action, target, since } = auditRoute.useSearch();
  const now = useNow(60_000);
  const { data: account } = useGet('/v1/account');
  if (account === undefined) return undefined;
  return {
    ...(actor === undefined ? {} : { actor }),
    ...(action === undefined ? {} : { action: [action] }),
    ...(target === undefined ? {} : { target }),
    ...(since === undefined
      ? {}
      : { start_time: startOfDay(Math.floor(now / 1000), account.time_zone, periods[since as keyof typeof periods]) }),
  };
}

function Log() {
  const t = useText<AuditTexts>('audit');
  const { entry: openId, ...filter } = auditRoute.useSearch();
  const navigate = auditRoute.useNavigate();
  const query = useQuery();
  const list = useList('/v1/audit_logs', { query: query ?? {} }, { enabled: query !== undefined, every: 10_000 });
  const open = list.rows.find(({ id }) => id === openId);
  const columns: readonly Column<Entry>[] = [
    {
      head: t('what'),
      main: true,
      cell: ({ id, action, outcome }) => (
        <>
          <Link className={styles['action']} to="/audit" search={{ ...filter, entry: id } as never} resetScroll={false}>
            {action}
          </Link>{' '}
          {outcome !== 'done' && <Badge tone={outcomes[outcome][1]}>{t(outcomes[outcome][0])}</Badge>}
        </>
      ),
    },
    { head: t('who'), cell: ({ actor }) => <Actor of={actor} /> },
    { head: t('subject'), cell: ({ target }) => (target === null ? '–' : <Subject id={target} />) },
    { head: t('at'), cell: ({ at }) => <Time at={at} /> },
  ];
  const isNarrow = Object.values(filter).some((value) => value !== undefined);
  return (
    <>
      <Filters actions={[...new Set(list.rows.map(({ action }) => action))]} />
      <Panel flush>
        <DataTable
          label={t('title')}
          columns={columns}
          list={list}
          keyOf={({ id }) => id}
          empty={<EmptyState title={t(isNarrow ? 'noMatch' : 'nothing')}>{t('nothingText')}</EmptyState>}
        />
      </Panel>
      {open !== undefined && (
        <EntryDialog of={open} onClose={() => void navigate({ search: filter as never, resetScroll: false })} />
      )}
    </>
  );
}

/** A person by their name, everything else by its id. */
function Subject({ id }: { readonly id: string }) {
  const person = useMembers().find((member) => member.id === id);
  return person === undefined ? (
    <code className={styles['id']}>{id}</code>
  ) : (
    <bdi className={styles['who']}>{person.name}</bdi>
  );
}

function Filters({ actions }: { readonly actions: readonly string[] }) {
  const t = useText<AuditTexts>('audit');
  const { entry: _entry, ...filter } = auditRoute.useSearch();
  const navigate = auditRoute.useNavigate();
  const members = useMembers();
  const set = (changes: Partial<typeof filter>): void => void navigate({ search: { ...filter, ...changes } as never });
  const isListed = filter.actor === undefined || members.some(({ id }) => id === filter.actor);
  const isNarrow = Object.values(filter).some((value) => value !== undefined);
  const subjects = [...new Set(actions.map((action) => action.split('.')[0]!))];
  return (
    <div className={styles['filters']} data-filter="">
      <Select
        label={t('who')}
        value={filter.actor ?? ''}
        options={[
          { value: '', text: t('everybody') },
          ...members.map(({ id, name }) => ({ value: id, text: name })),
          ...(isListed ? [] : [{ value: filter.actor!, text: filter.actor! }]),
        ]}
        onChange={(event) => set({ actor: event.target.value || undefined })}
      />
      <Typed
        label={t('what')}
        value={filter.action}
        placeholder="key.create"
        suggestions={[...subjects, ...actions].toSorted()}
        onChange={(action) => set({ action })}
      />
      <Typed label={t('subjectId')} value={filter.target} placeholder="key_…" onChange={(target) => set({ target })} />
      <Select
        label={t('period')}
        value={filter.since ?? ''}
        options={[
          { value: '', text: t('always') },
          { value: 'today', text: t('today') },
          { value: '7d', text: t('days7') },
          { value: '30d', text: t('days30') },
          { value: '90d', text: t('days90') },
        ]}
        onChange={(event) =>
          set({ since: (Object.keys(periods) as (keyof typeof periods)[]).find((one) => one === event.target.value) })
        }
      />
      {isNarrow && (
        <button type="button" className={styles['clear']} onClick={() => void navigate({ search: {} as never })}>
          {t('clear')}
        </button>
      )}
    </div>
  );
}

interface TypedProps {
  readonly label: string;
  readonly value: string | undefined;
  readonly placeholder: string;
  readonly suggestions?: readonly string[];
  readonly onChange: (value: string | undefined) => void;
}

/** A text that counts once it is whole: with Enter, or when one leaves the field. */
function Typed({ label, value, placeholder, suggestions = [], onChange }: TypedProps) {
  const list = useId();
  const commit = (typed: string): void => {
    const wanted = typed.trim() || undefined;
    if (wanted !== value) onChange(wanted);
  };
  return (
    <Field label={label}>
      {(control) => (
        <>
          <input
            className={controlClass}
            key={value}
            defaultValue={value ?? ''}
            placeholder={placeholder}
            maxLength={200}
            autoComplete="off"
            spellCheck={false}
            list={list}
            onBlur={(event) => commit(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === 'Enter') commit(event.currentTarget.value);
            }}
            {...control}
          />
          <datalist id={list}>
            {suggestions.map((one) => (
              <option key={one} value={one} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}
