import type { Server } from 'node:http';
import { join } from 'node:path';

import { Directory } from '../accounts/directory.ts';
import { Follower } from '../accounts/follower.ts';
import { openSecret } from '../accounts/secret.ts';
import type { Secret } from '../accounts/secret.ts';
import { Billing } from '../billing/billing.ts';
import { AccountPrices } from '../catalog/account-prices.ts';
import { Catalog } from '../catalog/catalog.ts';
import type { Model } from '../catalog/model.ts';
import type { Config, LimitsConfig, ModelConfig } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import { memoryBudgetOf } from './backends.ts';
import type { OpenBackend } from './backends.ts';
import { JsonThreads } from '../edge/json/threads.ts';
import type { Engine } from '../engines/engine.ts';
import { BucketBytes } from '../files/bucket-bytes.ts';
import { Files } from '../files/files.ts';
import type { FileBytes } from '../files/file-bytes.ts';
import { FolderBytes } from '../files/folder-bytes.ts';
import { PdfTexts } from '../files/pdf-text.ts';
import { BodyBudget } from '../http/body.ts';
import { createInferenceHost } from '../http/server.ts';
import { ImageFetcher } from '../images/fetcher.ts';
import { createNameResolver } from '../images/resolver.ts';
import { Admission } from '../limits/admission.ts';
import { Limits } from '../limits/limits.ts';
import { lacksMemory, monitorLoad } from '../limits/load.ts';
import { openCounts } from './counts.ts';
import { steadyClock } from '../limits/steady-clock.ts';
import { countSockets, edgeLimitsOf, listen, trustedProxiesOf } from './listening.ts';
import type { Log } from '../log.ts';
import type { FetchProgress } from '../model-files/meter.ts';
import type { JobReading } from '../jobs/jobs.ts';
import { readProcess } from '../metrics/process-readings.ts';
import { ServiceMetrics } from '../metrics/service-metrics.ts';
import type { BackendReading, ConfigReading } from '../metrics/service-metrics.ts';
import { Constraints } from '../pipeline/constraints.ts';
import { Idempotency } from '../pipeline/idempotency.ts';
import { KeptItems } from '../pipeline/kept-items.ts';
import { FileParts } from '../pipeline/files.ts';
import { placesOf } from '../pipeline/places.ts';
import type { Places } from '../pipeline/places.ts';
import { Running } from '../pipeline/running.ts';
import { SealKeys } from '../pipeline/seals.ts';
import { Snapshots } from '../pipeline/snapshot.ts';
import type { RequestLimits, Snapshot } from '../pipeline/snapshot.ts';
import type { Feed } from '../store/feed.ts';
import type { Store, StoreOptions } from './stores.ts';
import { Succession } from './succession.ts';
import { uuidMaker } from '../ids/uuid.ts';

export interface ServingOptions {
  readonly config: Config;
  readonly environment: Environment;
  /** Of the program. */
  readonly version: string;
  readonly log: Log;
  /** A part that the service cannot live without has died; end the process. */
  readonly onFatal: (error: Error) => void;
  readonly onDownload: (modelId: string, progress: FetchProgress) => void;
  readonly openStore: (options: StoreOptions) => Promise<Store>;
  /** Where the pages of error codes are. */
  readonly accountUrl: () => string;
  /** What only the process knows that reads the configuration and has the account host. */
  readonly readings: () => {
    readonly config: ConfigReading;
    readonly accountSockets: number;
    readonly jobs: readonly JobReading[];
  };
  /** Processes that share the memory of this machine for the same work. */
  readonly processes: number;
}

/** What answers requests, all of it in this process. */
export interface Serving {
  readonly store: Store;
  readonly feed: Feed;
  readonly secret: Secret;
  readonly directory: Directory;
  readonly prices: AccountPrices;
  readonly metrics: ServiceMetrics;
  readonly succession: Succession;
  /** Makes UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** What time it is for all processes on the same books. */
  readonly now: () => number;
  /** Opens the inference host; resolves with its port. */
  listen(): Promise<number>;
  /** Cancels what runs. */
  cut(): void;
  /** Takes no new work and lets what runs end, at most for so long. */
  drain(limitMs: number): Promise<void>;
  /** Closes everything. */
  close(): Promise<void>;
}

/** Last bytes of requests that were cut when the service stops. */
const drainGraceMs = 2_000;
const tidyItemsEveryMs = 60_000;

/**
 * Puts together what answers requests: who needs whom, except for the host of accounts and what an operator asks for.
 * `opened` is given what closes each part, as soon as the part is open.
 */
export async function openServing(options: ServingOptions, opened: (() => unknown)[]): Promise<Serving> {
  const { config, environment, log, accountUrl } = options;
  const running = new Running();

  const store = await options.openStore({
    free: {
      // The ledger asks for free balances, and they live in billing, which needs the ledger.
      credit: (accountId, microcents) => billing.credit(accountId, microcents),
      reserve: (accountId, microcents) => billing.reserve(accountId, microcents),
      freeMicrocents: (accountId) => billing.freeMicrocents(accountId) ?? 0n,
      forget: () => billing.forget(),
    },
    onFatal: options.onFatal,
    onBatch: (rows, elapsedMs, isRefused) => metrics.ledgerBatch(rows, elapsedMs, isRefused),
    log: (level, message) => log.service({ level, event: 'store', detail: { message } }),
  });
  opened.push(() => store.close());
  const now = (): number => store.now();
  const newId = uuidMaker(now);

  const billing: Billing = new Billing({
    ledger: store.ledger,
    newId,
    now,
    topupUrl: () => `${accountUrl()}/topup`,
    log: (event) => {
      metrics.settlement(event.event === 'settlement_repaired' ? 'repaired' : 'unrepaired');
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
  const directory = new Directory(secret, now);
  directory.listen((cut) => {
    if (cut.kind !== 'account_suspended') running.cancelKey(cut.keyId);
    else running.cancelAccount(cut.accountId);
  });

  const prices = new AccountPrices();
  const feed = await store.follow(
    new Follower({
      directory,
      prices,
      budgetChanged: (subject) => store.ledger.budgetChanged(subject),
      now,
      warn: (message) => log.service({ level: 'warn', event: 'keys', detail: { message } }),
    }),
  );
  opened.push(() => feed.close());
  const items = new KeptItems({
    desk: store.desk,
    keepDays: config.items.keepDays,
    now,
    failed: (what, code) => log.service({ level: 'warn', event: `items_${what}_failed`, detail: { code } }),
  });
  const idempotency = new Idempotency({
    desk: store.desk,
    secret: secret.fingerprints,
    owner: () => store.ledger.replicaId,
    running,
    now,
    counted: (outcome) => metrics.idempotent(outcome),
    failed: (what, code) => log.service({ level: 'warn', event: `idempotency_${what}_failed`, detail: { code } }),
  });
  const files = new Files({
    desk: store.desk,
    bytes: fileBytes(config, environment),
    bounds: boundsOf(config),
    log: (event, reason) => log.service({ level: 'warn', event, detail: { reason } }),
    now,
  });
  opened.push(() => files.close());
  await files.start();
  const pdfs = new PdfTexts();
  opened.push(() => pdfs.close());
  const downloads = new AbortController();
  const { limits } = config.server;
  const backendServices = {
    environment,
    log,
    memory: memoryBudgetOf(config.models, limits),
    onDownload: options.onDownload,
    stopping: downloads.signal,
  };
  const admission = new Admission(limits.requestsRunningMax);
  // A machine's own clock may be set while requests are counted; the time of several is nobody's to set.
  const windowClock = store.limitClock ?? (feed.isShared ? now : steadyClock(now()));
  const counts = await openCounts(store, windowClock, log, () => running.cancelAll('lost'));
  opened.push(() => counts.close());
  const { concurrencyPerAccountMax } = limits;
  const callerLimits = new Limits({ counts: counts.of, concurrencyPerAccountMax, plans: config.plans, wall: now });
  const bodyBudget = new BodyBudget(limits.bodiesInFlightBytesMax);
  const edge = edgeLimitsOf(limits);
  const closing = new Set<Promise<void>>();
  const succession = new Succession(config, {
    backendServices,
    apply: (next, backends) => {
      snapshots.swap(snapshotOf(next, backends, snapshots.current));
      // Limits that span requests hold for all of them from now on.
      callerLimits.concurrencyPerAccountMax = next.server.limits.concurrencyPerAccountMax;
      callerLimits.plans = next.plans;
      bodyBudget.bytesMax = next.server.limits.bodiesInFlightBytesMax;
      admission.runningMax = next.server.limits.requestsRunningMax;
      items.keepDays = next.items.keepDays;
      files.bounds = boundsOf(next);
      edge.readerStallMs = next.server.limits.readerStallTimeoutMs;
    },
  });
  const snapshots = new Snapshots(snapshotOf(config, succession.backends), (backend) => {
    const closed = backend.engine.close().finally(() => closing.delete(closed));
    closing.add(closed);
  });
  opened.push(async () => {
    downloads.abort(new Error('the service could not start'));
    await Promise.all(succession.backends.map((backend) => backend.engine.close()));
  });
  const processReadings = readProcess();
  opened.push(() => processReadings.stop());
  const metrics: ServiceMetrics = new ServiceMetrics({
    version: options.version,
    process: processReadings,
    requestsRunning: () => running.count,
    openHolds: () => billing.openHolds,
    heldMicrocents: () => billing.heldMicrocents,
    settlementsWaiting: () => store.ledger.backlog,
    bodyBytes: () => bodyBudget.bytes,
    sockets: () => ({ inference: inferenceSockets(), account: options.readings().accountSockets }),
    logLinesDropped: () => log.linesDropped,
    backends: () => succession.backends.map(readingOf),
    lines: () => [...snapshots.current.places].map(([model, { line }]) => ({ model, length: line.length })),
    config: () => ({ ...options.readings().config, leaving: snapshots.leaving }),
    workers: () => 1,
    workersEnded: () => 0,
    jobs: () => options.readings().jobs,
  });

  let stopping = false;
  const jsonThreads = new JsonThreads();
  opened.push(() => jsonThreads.close());
  const constraints = new Constraints();
  opened.push(() => constraints.close());
  const fetcher = new ImageFetcher();
  let inferenceSockets = (): number => 0;
  let inferenceHost: Server | undefined;
  let endMonitor = (): void => {};
  const open = (): Server =>
    createInferenceHost(
      {
        directory,
        feed,
        constraints,
        prices,
        seals: new SealKeys(secret.sealSigning, secret.sealEncryption),
        lease: () => snapshots.lease(),
        bodyBudget,
        items,
        idempotency,
        imageFetcher: fetcher,
        files,
        fileParts: new FileParts(files, pdfs, fetcher),
        newId,
        now,
        running,
        log,
        metrics,
        billing,
        limits: callerLimits,
        admission,
        jsonThreads,
        ready: () => !stopping,
        storeAnswers: () => store.isAnswering?.() ?? true,
      },
      { version: options.version, accountUrl: accountUrl(), edge },
    );
  const judge = (host: Server): (() => void) =>
    monitorLoad({
      limits: limits.shedding,
      memoryBytesMax: limits.memoryBytesMax,
      processes: options.processes,
      judged: (rung, sample) => {
        const before = admission.rung;
        admission.judged(rung, lacksMemory(sample, limits.shedding));
        if (rung === 3) host.closeIdleConnections();
        const taken = admission.rung;
        if (taken !== before)
          log.service({
            level: taken >= 2 ? 'warn' : 'info',
            event: 'load',
            detail: {
              rung: taken,
              lag_ms: Math.round(sample.lagMs),
              busy_percent: Math.round(sample.busyShare * 100),
              memory_percent: Math.round(sample.memoryShare * 100),
              running: admission.running,
            },
          });
      },
    });

  let tidying: Promise<void> | undefined;
  const tidyItems = setInterval(() => {
    tidying ??= items.tidy().finally(() => (tidying = undefined));
    void idempotency.tidy();
  }, tidyItemsEveryMs);
  tidyItems.unref();
  opened.push(() => clearInterval(tidyItems));

  return {
    store,
    feed,
    secret,
    directory,
    prices,
    metrics,
    succession,
    newId,
    now,
    listen: async () => {
      const host = open();
      inferenceHost = host;
      inferenceSockets = countSockets(host);
      const port = await listen(host, config.server.inference);
      opened.push(() => host.close());
      endMonitor = judge(host);
      opened.push(() => endMonitor());
      return port;
    },
    cut: () => running.cancelAll('drain'),
    drain: async (limitMs) => {
      stopping = true;
      clearInterval(tidyItems);
      processReadings.stop();
      endMonitor();
      downloads.abort(new Error('the service is being stopped'));
      // Closed ports refuse new work; what has begun goes on.
      inferenceHost?.close();
      inferenceHost?.closeIdleConnections();
      await running.drain(limitMs, drainGraceMs);
      inferenceHost?.closeAllConnections();
    },
    close: async () => {
      const engines = succession.backends.map((backend) => backend.engine.close());
      await Promise.all([jsonThreads.close(), ...engines, ...closing]);
      pdfs.close();
      await files.close();
      await feed.close();
      await counts.close();
      await store.close();
    },
  };
}

/** All that requests read of a configuration, in one object: a request has the one that it began with. */
function snapshotOf(config: Config, backends: readonly OpenBackend[], before?: Snapshot): Snapshot {
  const waitMaxMs = config.server.limits.firstTokenTimeoutMs;
  return {
    catalog: new Catalog(config.models.map(modelOf)),
    limits: requestLimits(config.server.limits),
    trustedProxies: trustedProxiesOf(config.server),
    allowedOrigins: new Set(config.server.allowOrigins),
    images: {
      rules: {
        fetches: config.images.fetches,
        allowedHosts: new Set(config.images.allowedHosts),
        ownHosts: new Set(ownHosts(config)),
      },
      resolver: createNameResolver(config.images.dnsServers),
    },
    places: new Map(
      config.models.map(({ id }) => {
        const own = backends.filter((backend) => backend.modelId === id);
        return [id, samePlaces(before?.places.get(id), own) ?? placesOf(own, waitMaxMs)];
      }),
    ),
  };
}

/** Whoever waits at backends that stay goes on waiting in the same line. */
const samePlaces = (before: Places | undefined, backends: readonly OpenBackend[]): Places | undefined =>
  before?.backends.length === backends.length && backends.every((backend, index) => before.backends[index] === backend)
    ? before
    : undefined;

const ownHosts = ({ server }: Config): readonly string[] =>
  [server.inference, server.account].flatMap(({ publicUrl: url }) =>
    url === undefined ? [] : [new URL(url).hostname],
  );

const boundsOf = ({ files }: Config) => ({ filesMax: files.perAccountMax, bytesMax: files.bytesPerAccountMax });

function fileBytes({ files, storage }: Config, { bucketKeys }: Environment): FileBytes {
  if (files.bucket === undefined) return new FolderBytes(join(storage.directory, 'files'));
  // Reading the configuration has seen to it.
  if (bucketKeys === undefined) throw new Error('the bucket of the files has no keys');
  const { accessKeyId, secretAccessKey, sessionToken } = bucketKeys;
  const keys = { accessKeyId, secretAccessKey: secretAccessKey.reveal(), sessionToken: sessionToken?.reveal() };
  return new BucketBytes({ ...files.bucket, ...keys });
}

const requestLimits = (limits: LimitsConfig): RequestLimits => ({
  primeMs: limits.primeTimeoutMs,
  keepAliveMs: limits.primeTimeoutMs,
  readerStallMs: limits.readerStallTimeoutMs,
  bodyBytesMax: limits.bodyBytesMax,
  requestDeadlineMs: limits.requestTimeoutMs,
});

function modelOf(config: ModelConfig): Model {
  const { pricing } = config;
  return {
    id: config.id,
    displayName: config.displayName,
    description: config.description,
    tier: config.tier,
    ownedBy: config.ownedBy,
    contextLength: config.contextLength,
    maxOutputTokens: config.maxOutputTokens,
    prices: {
      input: pricing.inputMicrocentsPerMillion,
      output: pricing.outputMicrocentsPerMillion,
      cacheRead: pricing.cacheReadMicrocentsPerMillion,
    },
    sampling: config.sampling,
    capabilities: config.capabilities,
    zdrCapabilities: config.zdrCapabilities,
    deprecationDate: config.deprecationDate,
    dedicatedTo: config.dedicatedTo.length === 0 ? undefined : new Set(config.dedicatedTo),
  };
}

const readingOf = ({ modelId, label, engine, running }: OpenBackend): BackendReading => ({
  model: modelId,
  backend: label,
  isReady: engine.status().state === 'ready',
  running,
  waiting: engine.waiting,
});

export function stateOf(engine: Engine): 'starting' | 'ready' | 'failed' {
  const { state } = engine.status();
  return state === 'down' ? 'failed' : state;
}
