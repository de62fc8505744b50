import { Link } from '@tanstack/react-router';
import type { UseQueryResult } from '@tanstack/react-query';

import { useGet, useSend } from '../../api/use-api.ts';
import type { Got, Sent } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { CodeBlock } from '../../components/code.tsx';
import { Count, Money, Time } from '../../components/figures.tsx';
import { Columns, Facts, Page, Panel, Tiles } from '../../components/page.tsx';
import { ErrorNote, Loaded, Note } from '../../components/state.tsx';
import { useNow } from '../../components/use-now.ts';
import { formatRelative } from '../../format/date.ts';
import { formatBytes, formatMilliseconds } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { Backends } from './backends.tsx';
import { findingsOf } from './findings.ts';
import { History } from './history.tsx';
import { Jobs } from './jobs.tsx';
import type { OperatorSystemTexts } from './messages/en.ts';
import styles from './operator-system.module.css';
import { Sources } from './sources.tsx';

const providers = { demo: 'demo', stripe: 'stripe' } as const;

type System = Got<'/v1/admin/system'>;

const refreshMs = 3000;
/** So many refreshes that did not come. */
const staleMs = 5 * refreshMs;

export default function SystemPage() {
  const t = useText<OperatorSystemTexts>('operator-system');
  const system = useGet('/v1/admin/system', undefined, { every: refreshMs });
  const backends = useGet('/v1/admin/backends', undefined, { every: refreshMs });
  const sources = useGet('/v1/admin/backend_sources', undefined, { every: refreshMs });
  return (
    <Page title={t('title')} lead={t('lead')} actions={<Freshness of={system} />}>
      {system.data !== undefined && system.error !== null && <ErrorNote error={system.error} />}
      <Loaded of={system} lines={4}>
        {(found) => (
          <>
            <Attention system={found} backends={backends.data?.data ?? []} sources={sources.data?.data ?? []} />
            <LoadTiles of={found} />
          </>
        )}
      </Loaded>
      <History />
      <BackendPanel of={backends} />
      <Sources of={sources} />
      <Loaded of={system}>{(found) => <Details of={found} />}</Loaded>
    </Page>
  );
}

function BackendPanel({ of: backends }: { readonly of: UseQueryResult<Got<'/v1/admin/backends'>> }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const check = useSend('post', '/v1/admin/backends/checks');
  return (
    <Panel
      flush
      title={t('backends')}
      actions={
        <Button small busy={check.isPending} onClick={() => check.mutate({})}>
          {t('check')}
        </Button>
      }
    >
      {check.error !== null && <ErrorNote error={check.error} />}
      {check.data !== undefined && <Checked of={check.data.data} />}
      <Loaded of={backends} lines={3}>
        {({ data }) => <Backends backends={data} />}
      </Loaded>
    </Panel>
  );
}

/** What the servers answered. */
function Checked({ of: checks }: { readonly of: Sent<'post', '/v1/admin/backends/checks'>['data'] }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const wrong = checks.filter(({ state }) => state !== 'ready');
  return (
    <div role="status" className={styles['checked']}>
      {wrong.length === 0 && <p>{checks.length === 0 ? t('noServers') : t('serversWell', { n: checks.length })}</p>}
      {wrong.map(({ model, name, state, problem }) => (
        <p key={`${model} ${name}`}>
          <Badge tone={state === 'down' ? 'bad' : 'warn'}>{t(state === 'down' ? 'serverDown' : 'serverWrong')}</Badge>{' '}
          <strong>
            {model} · {name}
          </strong>{' '}
          {problem}
        </p>
      ))}
    </div>
  );
}

/** Figures that are old are said to be, before anybody decides by them. */
function Freshness({ of: { dataUpdatedAt: at } }: { readonly of: UseQueryResult }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const now = useNow(1000);
  if (at === 0) return null;
  const isStale = now - at > staleMs;
  return (
    <span className={styles['freshness']}>
      <Badge tone={isStale ? 'warn' : 'good'}>{isStale ? t('stale') : t('live')}</Badge>
      {isStale && formatRelative(at / 1000, now / 1000)}
    </span>
  );
}

interface AttentionProps {
  readonly system: System;
  readonly backends: Got<'/v1/admin/backends'>['data'];
  readonly sources: Got<'/v1/admin/backend_sources'>['data'];
}

/** What should not stay as it is. */
function Attention(props: AttentionProps) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const findings = findingsOf(props.system, props.backends, props.sources);
  if (findings.length === 0) return <Note tone="good">{t('allWell')}</Note>;
  return (
    <Note tone="warn">
      <ul className={styles['findings']} aria-label={t('attention')}>
        {findings.map(({ text, values }) => (
          <li key={text + JSON.stringify(values)}>{t(text, values)}</li>
        ))}
      </ul>
    </Note>
  );
}

function LoadTiles({ of: system }: { readonly of: System }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  return (
    <Tiles
      tiles={[
        {
          name: t('running'),
          value: <Count value={system.requests_running} />,
          note: t('connections', { n: system.open_sockets.inference }),
        },
        {
          name: t('held'),
          value: <Money microcents={system.held_microcents} />,
          note: t('holds', { n: system.holds_open }),
        },
        {
          name: t('settling'),
          value: <Count value={system.settlements_waiting} />,
          note: t('settlingNote'),
        },
        {
          name: t('memory'),
          value: formatBytes(system.resident_memory_bytes),
          note: t('processes', { n: system.workers }),
        },
        {
          name: t('lag'),
          value: formatMilliseconds(system.event_loop_delay_seconds * 1000),
          note: t('lagNote'),
        },
      ]}
    />
  );
}

function Details({ of: system }: { readonly of: System }) {
  const t = useText<OperatorSystemTexts>('operator-system');
  const { stores, configuration } = system;
  return (
    <Columns>
      <div>
        <Panel title={t('service')}>
          <Facts
            facts={[
              [t('version'), `Tokenhouse ${system.version} · Node.js ${system.node}`],
              [t('started'), <Time at={system.started_at} relative />],
              [t('inference'), system.inference_url === null ? '–' : <code>{`${system.inference_url}/v1`}</code>],
              [t('console'), <code>{system.account_url}</code>],
              [
                t('configuration'),
                <>
                  <code>{configuration.file ?? t('noFile')}</code>
                  <div>
                    {configuration.is_in_force ? (
                      t('inForce', { n: configuration.version })
                    ) : (
                      <Badge tone="bad">{t('refused')}</Badge>
                    )}
                  </div>
                </>,
              ],
              [t('workers'), t('workersOf', { n: system.workers, ended: system.workers_ended })],
              [t('logLines'), t('dropped', { n: system.log_lines_dropped })],
            ]}
          />
        </Panel>
        <Panel title={t('stores')}>
          <Facts
            facts={[
              [
                t('database'),
                <>
                  {stores.database === 'sqlite' ? 'SQLite' : 'PostgreSQL'}
                  <div>
                    <code>{stores.database_location}</code>
                  </div>
                </>,
              ],
              [t('size'), stores.database_bytes === null ? '–' : formatBytes(stores.database_bytes)],
              [t('free'), stores.free_bytes === null ? '–' : formatBytes(stores.free_bytes)],
              [t('files'), <code>{stores.files}</code>],
              [t('mail'), system.mail === 'smtp' ? 'SMTP' : <Link to="/operator/outbox">{t('outbox')}</Link>],
              [t('payments'), system.payments === null ? t('off') : t(providers[system.payments])],
              [t('bodies'), formatBytes(system.body_bytes)],
            ]}
          />
        </Panel>
        <Panel title={t('doctor')}>
          <p className={styles['text']}>{t('doctorText')}</p>
          <CodeBlock label={t('doctor')} code="npx tokenhouse doctor" />
        </Panel>
      </div>
      <div>
        <Jobs of={system.jobs} />
      </div>
    </Columns>
  );
}
