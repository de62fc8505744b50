import { Link } from '@tanstack/react-router';

import type { Got } from '../../api/use-api.ts';
import { useBackendState } from '../../components/backend-state.ts';
import { Badge } from '../../components/badge.tsx';
import { Count, Time } from '../../components/figures.tsx';
import { Meter } from '../../components/meter.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { formatBytes, formatNumber, formatPercent } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import type { OperatorSystemTexts } from './messages/en.ts';
import styles from './operator-system.module.css';

type Backend = Got<'/v1/admin/backends'>['data'][number];

const engines = { llama: 'embedded', openai: 'server', scripted: 'scripted' } as const;

export function Backends({ backends }: { readonly backends: readonly Backend[] }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const columns: readonly Column<Backend>[] = [
    {
      head: t('backend'),
      main: true,
      cell: ({ model, name, engine, url, zdr, shared_memory: memory }) => (
        <div className={styles['backend']}>
          <span>
            <Link to="/operator/catalogue" search={{ model } as never}>
              {model}
            </Link>{' '}
            · {name} {zdr && <Badge>ZDR</Badge>}
          </span>
          {url === null ? <span>{engine === null ? '' : t(engines[engine])}</span> : <code>{url}</code>}
          <Shared memory={memory} />
        </div>
      ),
    },
    { head: t('state'), cell: (backend) => <State of={backend} /> },
    {
      head: t('running'),
      cell: ({ running, max_concurrency: max }) =>
        max === null ? (
          <Count value={running} />
        ) : (
          <Meter label={t('running')} value={running} max={max}>
            {t('runningOf', { n: running, max })}
          </Meter>
        ),
    },
    {
      head: t('waiting'),
      number: true,
      cell: ({ waiting, model_waiting: queue }) => <Count value={(waiting ?? 0) + queue} />,
    },
    {
      head: t('speed'),
      number: true,
      cell: ({ prompt_tokens_per_second: speed }) =>
        speed === null ? '–' : t('perSecond', { n: formatNumber(speed) }),
    },
    { head: t('cachedPrompts'), number: true, cell: ({ last_hour: hour }) => <Share of={hour?.cached} /> },
    { head: t('soundCalls'), number: true, cell: ({ last_hour: hour }) => <Share of={soundCalls(hour)} /> },
    { head: t('soundJson'), number: true, cell: ({ last_hour: hour }) => <Share of={hour?.json_answers_fit} /> },
    { head: t('failures'), number: true, cell: ({ failures }) => <Count value={failures} /> },
    { head: t('ejections'), number: true, cell: ({ ejections }) => <Count value={ejections} /> },
  ];
  return (
    <DataTable
      label={t('backends')}
      columns={columns}
      list={wholeList(backends)}
      keyOf={({ model, name }) => `${model} ${name}`}
      empty={<EmptyState title={t('noBackends')}>{t('noBackendsText')}</EmptyState>}
    />
  );
}

/** What is declared of a server's part of its group, and the most that it was seen to hold. */
function Shared({ memory }: { readonly memory: Backend['shared_memory'] }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  if (memory === null) return null;
  const { group, declared, learned, exceeds, doubted } = memory;
  return (
    <span className={styles['shared']}>
      {group}: {declared !== null && t('shareDeclared', { part: formatPercent(declared) })}
      {declared === null && (doubted ? t('shareDoubted') : learned === null && t('shareUnknown'))}
      {(declared !== null || doubted) && learned !== null && ', '}
      {learned !== null &&
        t('shareHeld', {
          held: formatBytes(learned.bytes),
          all: formatBytes(learned.of_bytes),
          part: formatPercent(learned.bytes / learned.of_bytes),
        })}{' '}
      {exceeds && <Badge tone="warn">{t('shareExceeds')}</Badge>}
    </span>
  );
}

/** A part of all as a percentage. */
function Share({ of }: { readonly of: number | null | undefined }) {
  return of === null || of === undefined ? '–' : formatPercent(of);
}

/** The least of the shares: what is wrong with calls is mostly one thing. */
function soundCalls(hour: Backend['last_hour']): number | null {
  const shares = [hour?.tool_calls_json, hour?.tool_calls_known, hour?.tool_calls_fit].filter(
    (share) => share !== null && share !== undefined,
  );
  return shares.length === 0 ? null : Math.min(...shares);
}

function State({ of: backend }: { readonly of: Backend }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const { tone, text } = useBackendState()(backend);
  const { detail, ejected_until: until } = backend;
  return (
    <div className={styles['state']}>
      <Badge tone={tone}>{text}</Badge>
      {detail !== null && <span>{detail}</span>}
      {backend.ejected && until !== null && (
        <span>
          {t('triedAgain')} <Time at={until} relative />
        </span>
      )}
    </div>
  );
}
