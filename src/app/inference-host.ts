import type { Server } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';

import { Directory } from '../accounts/directory.ts';
import { Follower } from '../accounts/follower.ts';
import { KeyLookUps } from '../accounts/key-look-ups.ts';
import { openSecret } from '../accounts/secret.ts';
import type { Secret } from '../accounts/secret.ts';
import { Billing, freeBalancesOf } from '../billing/billing.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import { sharedByBackends } from './backends.ts';
import { searchForGpus } from './gpus.ts';
import { JsonThreads } from '../platform/http/json/threads.ts';
import { BodyBudget } from '../inference/http/body-budget.ts';
import { createInferenceHost } from '../inference/http/inference-server.ts';
import type { InferenceHostServices } from '../inference/http/host.ts';
import { Admission } from '../billing/rate-limits/admission.ts';
import { Limits } from '../billing/rate-limits/rate-limits.ts';
import { lacksMemory, monitorLoad } from '../billing/rate-limits/load.ts';
import { openBatches } from './open-batches.ts';
import { openCounts } from './counts.ts';
import { steadyClock } from '../billing/rate-limits/steady-clock.ts';
import { openSpans } from './telemetry-exports.ts';
import { countSockets, listenerLimitsOf, listen } from './listening.ts';
import type { DrainTimes } from './listening.ts';
import type { Log } from '../platform/log.ts';
import type { FetchProgress } from '../inference/model-files/meter.ts';
import type { JobReading } from '../platform/jobs/jobs.ts';
import type { LoopWatch } from '../platform/loop-watch.ts';
import type { ProcessReadings } from '../platform/metrics/process-readings.ts';
import { ServiceMetrics } from '../platform/metrics/service-metrics.ts';
import type { ConfigReading, SourceReading } from '../platform/metrics/service-readings.ts';
import type { Backend } from '../inference/pipeline/backend-pool.ts';
import type { Fleet } from '../inference/routing/fleet.ts';
import { FleetPeers } from '../inference/routing/fleet-peers.ts';
import { ServerReports } from '../inference/routing/server-reports.ts';
import { exchangeWithPeers } from './peer-exchange.ts';
import { askServers, lookAtIdle } from './server-questions.ts';
import { ActiveRequests } from '../inference/pipeline/active-requests.ts';
import { ReasoningKeys } from '../inference/pipeline/reasoning-keys.ts';
import { RuntimeConfigs } from '../inference/pipeline/runtime-config.ts';
import type { Feed } from '../store/feed.ts';
import { openStore, type Store } from './stores.ts';
import { BodyRoom } from './body-room.ts';
import { ConfigRollout } from './config-rollout.ts';
import { readingOf } from './backend-state.ts';
import { boundsOf, openKept } from './kept-for-requests.ts';
import { prefixSaltOf, runtimeConfigOf } from './runtime-config-of.ts';
import type { PoolOptions } from './runtime-config-of.ts';
import { backendLog, filterLine } from './service-lines.ts';
import { openRequestWork } from './request-work.ts';
import type { RequestWork } from './request-work.ts';
import { watchProcess } from './watch-process.ts';
import { tiers } from '../generation/tier.ts';
import { uuidMaker } from '../platform/ids/uuid.ts';

export interface ServingOptions {
  readonly config: Config;
  readonly environment: Environment;
  /** Version of the program. */
  readonly version: string;
  readonly log: Log;
  /** Called when an indispensable part of the service has died; end the process. */
  readonly onFatal: (error: Error) => void;
  readonly onDownload: (modelId: string, progress: FetchProgress) => void;
  /** The address of the pages of error codes. */
  readonly accountUrl: () => string;
  /** Readings known only to the process that reads the configuration and has the account host. */
  readonly readings: () => {
    readonly config: ConfigReading;
    readonly accountSockets: number;
    readonly jobs: readonly JobReading[];
    /** Failed posts of metrics to a collector. */
    readonly metricsFailures: number;
    readonly sources: readonly SourceReading[];
  };
  /** Processes that share this machine's memory for the same work. */
  readonly processes: number;
}

/** The part that answers requests, all of it in this process. */
export interface Serving {
  readonly store: Store;
  readonly feed: Feed;
  readonly secret: Secret;
  readonly metrics: ServiceMetrics;
  readonly rollout: ConfigRollout;
  readonly files: Kept['files'];
  readonly traffic: Kept['traffic'];
  /** Makes UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** The time shared by all processes on the same ledger. */
  readonly now: () => number;
  /** Opens the inference host; resolves with its port. */
  listen(): Promise<number>;
  /** Whether a load balancer should send work here. */
  isReady(): Promise<boolean>;
  /** Cancels running requests. */
  cut(): void;
  /** Reports that it is not ready, takes no new work after a delay, and lets running requests end within a time. */
  drain(times: DrainTimes): Promise<void>;
  /** Closes everything. */
  close(): Promise<void>;
}

/** Time for the last bytes of requests that are cut when the service stops. */
const drainGraceMs = 2_000;

/**
 * Wires up what answers requests, except for the account host and the operator's side. `opened` receives what closes each part, as
 * soon as the part is open.
 */
export async function openServing(options: ServingOptions, opened: Opened): Promise<Serving> {
  const { config } = options;
  // The parts report to the metrics, which read the parts.
  const reported = (): ServiceMetrics => metrics;
  const accounts = await openAccounts(options, opened, reported);
  const kept = await openKept({ ...options, ...accounts, metrics: reported, opened });
  const work = openRequestWork(kept.files, opened);
  const { loop, processReadings } = watchProcess(opened);
  const limits = await openLimits(options, accounts, loop, opened);
  const models = openModels(options, accounts, kept, limits, opened);
  const spans = openSpans(options);
  opened.push(() => spans?.close());
  let inferenceSockets = (): number => 0;
  const readings = { process: processReadings, inferenceSockets: () => inferenceSockets(), spans, work: work.readings };
  const batches = openBatches({ ...options, ...accounts, ...models, files: kept.files, opened });
  const metrics: ServiceMetrics = metricsOf(options, accounts, limits, models, readings);

  /** Set before it stops: a load balancer first has to see that it is not ready. */
  let leaving = false;
  let stopping = false;
  const cut = new AbortController();
  const jsonThreads = new JsonThreads();
  opened.push(() => jsonThreads.close());
  let inferenceHost: Server | undefined;
  let endMonitor = (): void => {};
  const { running, store, billing, feed, secret, newId, now } = accounts;
  // `feed` follows the changes, `billing` checks the ledger; idempotency keys, stored items and files need the rest of the store.
  const isReady = async (): Promise<boolean> =>
    !leaving && !feed.isStale && (store.isAnswering?.() ?? true) && (await billing.isAnswered());
  return {
    store,
    feed,
    secret,
    metrics,
    rollout: models.rollout,
    files: kept.files,
    traffic: kept.traffic,
    newId,
    now,
    listen: async () => {
      const parts = { accounts, kept, batches, limits, models, metrics, spans, jsonThreads, work };
      const host = hostOf(options, parts, { ready: () => !stopping, isReady });
      inferenceHost = host;
      inferenceSockets = countSockets(host);
      const port = await listen(host, config.server.inference);
      opened.push(() => host.close());
      endMonitor = judgeLoad(options, limits, models.rollout, host, loop);
      opened.push(() => endMonitor());
      accounts.keyLookUps.fill();
      return port;
    },
    isReady,
    cut: () => {
      cut.abort();
      running.cancelAll('drain');
    },
    drain: async ({ drainDelayMs, drainTimeoutMs }) => {
      leaving = true;
      if (drainDelayMs > 0) await delay(drainDelayMs, undefined, { signal: cut.signal }).catch(() => {});
      stopping = true;
      batches.stop();
      kept.stopTidying();
      processReadings.stop();
      endMonitor();
      loop.stop();
      models.downloads.abort(new Error('the service is being stopped'));
      // Closed ports refuse new work; running requests continue.
      inferenceHost?.close();
      inferenceHost?.closeIdleConnections();
      await running.drain(drainTimeoutMs, drainGraceMs);
      inferenceHost?.closeAllConnections();
    },
    close: async () => {
      await batches.close();
      await Promise.all([jsonThreads.close(), models.close(), spans?.close()]);
      work.pdfs.close();
      await Promise.all([kept.files.close(), kept.errorCounts.close()]);
      accounts.keyLookUps.close();
      await feed.close();
      await limits.counts.close();
      await store.close();
    },
  };
}

type Opened = (() => unknown)[];

type Accounts = Awaited<ReturnType<typeof openAccounts>>;
type Kept = Awaited<ReturnType<typeof openKept>>;
type RunningLimits = Awaited<ReturnType<typeof openLimits>>;
type Models = ReturnType<typeof openModels>;

/** Opens what decides who may send requests and what they cost: the store, the keys in memory, and the money. */
async function openAccounts(options: ServingOptions, opened: Opened, metrics: () => ServiceMetrics) {
  const { config, environment, log, accountUrl } = options;
  const running = new ActiveRequests();
  const store = await openStore(config.storage, {
    free: freeBalancesOf(() => billing),
    onFatal: options.onFatal,
    onBatch: (rows, elapsedMs, isRefused) => metrics().ledgerBatch(rows, elapsedMs, isRefused),
    log: (level, message) => log.service({ level, event: 'store', detail: { message } }),
  });
  opened.push(() => store.close());
  const now = (): number => store.now();
  const newId = uuidMaker(now);

  const billing: Billing = new Billing({
    ledger: store.ledger,
    newId,
    now,
    sharesLedger: store.limits !== undefined,
    topupUrl: () => `${accountUrl()}/topup`,
    log: (event) => {
      metrics().settlement(event.event === 'settlement_repaired' ? 'repaired' : 'unrepaired');
      log.service({
        level: event.event === 'settlement_repaired' ? 'warn' : 'error',
        event: event.event,
        detail: { request: event.requestId, tries: event.tries, refund_microcents: event.refundMicrocents },
      });
    },
  });

  const secret = openSecret({
    fromEnvironment: environment.secret?.reveal(),
    dataFolder: config.storage.directory,
    warn: (message) => log.service({ level: 'warn', event: 'secret', detail: { message } }),
  });
  const directory = new Directory(secret, now, config.server.limits.keysInMemoryMax);
  directory.listen((cut) => {
    if (cut.kind !== 'account_suspended') running.cancelKey(cut.keyId);
    else running.cancelAccount(cut.accountId);
  });

  const feed = await store.follow(
    new Follower({
      directory,
      runningKeys: () => running.keyIds(),
      budgetChanged: (subject) => store.ledger.leases.budgetChanged(subject),
      now,
      warn: (message) => log.service({ level: 'warn', event: 'keys', detail: { message } }),
    }),
  );
  opened.push(() => feed.close());
  const keyLookUps = new KeyLookUps({
    directory,
    repositories: store.repositories,
    now,
    filled: (outcome) => log.service(filterLine(outcome)),
  });
  opened.push(() => keyLookUps.close());
  return { running, store, now, newId, billing, secret, directory, keyLookUps, feed };
}

/** Opens the limits on what may run and be read at the same time, for the process and for each caller. */
async function openLimits(
  { config, log, processes }: ServingOptions,
  { running, store, now, feed }: Accounts,
  loop: LoopWatch,
  opened: Opened,
) {
  const { limits } = config.server;
  // A machine's clock may be set while requests are counted; the time shared by several processes never is.
  const windowClock = feed.isShared ? now : steadyClock(now());
  const counts = await openCounts(store, windowClock, log, () => running.cancelAll('lost'));
  opened.push(() => counts.close());
  const { concurrencyPerAccountMax } = limits;
  const room = new BodyRoom(processes);
  const lack = room.lack(limits);
  if (lack !== undefined) log.service(lack);
  return {
    counts,
    admission: new Admission(limits.requestsRunningMax, () => loop.wake()),
    callers: new Limits({ counts: counts.of, concurrencyPerAccountMax, plans: config.plans, wall: now }),
    room,
    bodyBudget: new BodyBudget(room.bytes(limits)),
    listener: listenerLimitsOf(limits),
  };
}

/** Opens the models' backends, and what requests read of the configuration; a new configuration changes both. */
function openModels(
  options: ServingOptions,
  { store, secret }: Accounts,
  kept: Kept,
  limits: RunningLimits,
  opened: Opened,
) {
  const { config, environment, log, onDownload } = options;
  const downloads = new AbortController();
  const pools: PoolOptions = {
    ...backendLog(log),
    prefixSalt: prefixSaltOf(secret),
    room: limits.room,
    weightOf: (account) => limits.callers.weightOf(account),
  };
  const rollout = new ConfigRollout(config, {
    backendServices: {
      environment,
      log,
      ...sharedByBackends(config, log),
      gpus: searchForGpus(environment),
      promptCaches: secret.promptCaches,
      onDownload,
      onFileDefaults: () =>
        runtimeConfigs.swap(runtimeConfigOf(rollout.config, rollout.backends, pools, runtimeConfigs.current)),
      stopping: downloads.signal,
    },
    apply: (next, backends) => {
      runtimeConfigs.swap(runtimeConfigOf(next, backends, pools, runtimeConfigs.current));
      // Limits across requests apply to all of them from now on.
      limits.callers.concurrencyPerAccountMax = next.server.limits.concurrencyPerAccountMax;
      limits.callers.plans = next.plans;
      limits.bodyBudget.bytesMax = limits.room.bytes(next.server.limits);
      limits.admission.runningMax = next.server.limits.requestsRunningMax;
      kept.items.keepDays = next.items.keepDays;
      kept.files.bounds = boundsOf(next);
      limits.listener.readerStallMs = next.server.limits.readerStallTimeoutMs;
    },
  });
  const closing = new Set<Promise<void>>();
  const runtimeConfigs = new RuntimeConfigs(runtimeConfigOf(config, rollout.backends, pools), (backend) => {
    const closed = backend.engine.close().finally(() => closing.delete(closed));
    closing.add(closed);
  });
  const fleetsOf = (): ReadonlyMap<string, Fleet<Backend>> =>
    new Map([...runtimeConfigs.current.pools].map(([model, { fleet }]) => [model, fleet]));
  const serverReports = new ServerReports(fleetsOf);
  const fleets = new FleetPeers(fleetsOf, serverReports);
  const endExchange = store.peers === undefined ? () => {} : exchangeWithPeers(store.peers, fleets, log);
  opened.push(endExchange);
  const endQuestions = askServers(serverReports, fleets);
  opened.push(endQuestions);
  const endLooks = lookAtIdle(() => rollout.backends);
  opened.push(endLooks);
  const closeEngines = (): Promise<unknown> => Promise.all(rollout.backends.map((backend) => backend.engine.close()));
  opened.push(async () => {
    downloads.abort(new Error('the service could not start'));
    await closeEngines();
  });
  const close = (): Promise<unknown> => {
    endExchange();
    endQuestions();
    endLooks();
    return Promise.all([closeEngines(), ...closing]);
  };
  return { rollout, runtimeConfigs, fleets, serverReports, downloads, close };
}

function metricsOf(
  { version, log, readings }: ServingOptions,
  { running, store, billing }: Accounts,
  { bodyBudget }: RunningLimits,
  { rollout, runtimeConfigs, fleets, serverReports }: Models,
  { process, inferenceSockets, spans, work }: OwnReadings,
): ServiceMetrics {
  return new ServiceMetrics({
    version,
    process,
    requestsRunning: () => running.count,
    openHolds: () => billing.openHolds,
    heldMicrocents: () => billing.heldMicrocents,
    settlementsWaiting: () => store.ledger.backlog,
    bodyBytes: () => bodyBudget.bytes,
    work,
    sockets: () => ({ inference: inferenceSockets(), account: readings().accountSockets }),
    logLinesDropped: () => log.linesDropped,
    telemetry: () => ({
      spans: spans?.counts ?? { sent: 0, dropped: 0 },
      failures: { traces: spans?.failures ?? 0, metrics: readings().metricsFailures },
    }),
    peerReports: () => fleets.reports,
    backends: () => rollout.backends.map((backend) => readingOf(backend, serverReports)),
    models: () =>
      [...runtimeConfigs.current.pools].map(([model, { queue, idle, retries }]) => ({
        model,
        waiting: Object.fromEntries(tiers.map((tier) => [tier, queue.lengthOf(tier)])),
        slotsFree: Number.isFinite(idle.unused) ? idle.unused : undefined,
        retries: retries.taken,
        retriesRefused: retries.refused,
      })),
    config: () => ({ ...readings().config, leaving: runtimeConfigs.leaving }),
    workers: () => 1,
    workersEnded: () => 0,
    jobs: () => readings().jobs,
    sources: () => readings().sources,
  });
}

/** Measurements of this process, besides those of its parts. */
interface OwnReadings {
  readonly process: ProcessReadings;
  readonly inferenceSockets: () => number;
  readonly spans: ReturnType<typeof openSpans>;
  readonly work: RequestWork['readings'];
}

interface HostParts {
  readonly accounts: Accounts;
  readonly kept: Kept;
  readonly batches: ReturnType<typeof openBatches>;
  readonly limits: RunningLimits;
  readonly models: Models;
  readonly metrics: ServiceMetrics;
  readonly spans: ReturnType<typeof openSpans>;
  readonly jsonThreads: JsonThreads;
  readonly work: RequestWork;
}

type HostState = Pick<InferenceHostServices, 'ready' | 'isReady'>;

function hostOf({ version, log, accountUrl, config }: ServingOptions, parts: HostParts, state: HostState): Server {
  const { running, now, newId, billing, secret, directory, keyLookUps, feed } = parts.accounts;
  const { callers, admission, bodyBudget, listener } = parts.limits;
  const { metrics, spans, jsonThreads } = parts;
  const { constraints, imageFetcher, fileParts, promptCounts } = parts.work;
  return createInferenceHost(
    {
      ...parts.kept,
      directory,
      feed,
      keyLookUps,
      constraints,
      reasoningKeys: new ReasoningKeys(secret.reasoningSigning, secret.reasoningEncryption),
      lease: () => parts.models.runtimeConfigs.lease(),
      bodyBudget,
      imageFetcher,
      batches: parts.batches.batches,
      batchLines: parts.batches.begin,
      fileParts,
      promptCounts,
      newId,
      now,
      running,
      log,
      metrics,
      traces: spans,
      billing,
      limits: callers,
      admission,
      jsonThreads,
      ...state,
    },
    {
      version,
      accountUrl: accountUrl(),
      isHttps: config.server.inference.publicUrl?.startsWith('https:') === true,
      listener,
    },
  );
}

/** Judges the load of the process from now on, until the returned function is called. */
function judgeLoad(
  { config, processes, log }: ServingOptions,
  { admission, bodyBudget, room }: RunningLimits,
  rollout: ConfigRollout,
  host: Server,
  loop: LoopWatch,
): () => void {
  const { shedding, memoryBytesMax } = config.server.limits;
  return monitorLoad({
    limits: shedding,
    memoryBytesMax,
    processes,
    loop,
    isBusy: () => admission.running > 0 || admission.isShedding,
    judged: (shedLevel, sample) => {
      const before = admission.shedLevel;
      bodyBudget.bytesMax = room.bytes(rollout.config.server.limits);
      admission.judged(shedLevel, lacksMemory(sample, shedding));
      if (shedLevel === 3) host.closeIdleConnections();
      const taken = admission.shedLevel;
      if (taken === before) return;
      log.service({
        level: taken >= 2 ? 'warn' : 'info',
        event: 'load',
        detail: {
          shedLevel: taken,
          lag_ms: Math.round(sample.lagMs),
          busy_percent: Math.round(sample.busyShare * 100),
          memory_percent: Math.round(sample.memoryShare * 100),
          running: admission.running,
        },
      });
    },
  });
}
