import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

import { createAccountHost } from './account-api/server.ts';
import { Directory } from './accounts/directory.ts';
import { Follower } from './accounts/follower.ts';
import { createFirstAccount } from './accounts/first-account.ts';
import type { FirstAccount } from './accounts/first-account.ts';
import { openSecret } from './accounts/secret.ts';
import { Billing } from './billing/billing.ts';
import { AccountPrices } from './catalog/account-prices.ts';
import { Catalog } from './catalog/catalog.ts';
import type { Model } from './catalog/model.ts';
import type { Config, LimitsConfig, ListenConfig, ModelConfig } from './config/config.ts';
import type { Environment } from './config/environment.ts';
import { localUrl, publicUrl } from './config/public-url.ts';
import type { ReloadOutcome } from './config/reload-outcome.ts';
import { watchFile } from './config/watch.ts';
import { listenForControl } from './control/server.ts';
import { controlSocketPath } from './control/socket-path.ts';
import { memoryBudgetOf, openBackend } from './backends.ts';
import type { OpenBackend } from './backends.ts';
import { defaultEdgeLimits } from './edge/edge.ts';
import { JsonThreads } from './edge/json/threads.ts';
import type { Engine } from './engines/engine.ts';
import { BucketBytes } from './files/bucket-bytes.ts';
import { Files } from './files/files.ts';
import type { FileBytes } from './files/file-bytes.ts';
import { FolderBytes } from './files/folder-bytes.ts';
import { PdfTexts } from './files/pdf-text.ts';
import { BodyBudget } from './http/body.ts';
import { createInferenceHost } from './http/server.ts';
import { ImageFetcher } from './images/fetcher.ts';
import { createNameResolver } from './images/resolver.ts';
import { Admission } from './limits/admission.ts';
import { Arbiter } from './limits/arbiter.ts';
import type { LimitCounts } from './limits/counts.ts';
import { Limits } from './limits/limits.ts';
import { monitorLoad } from './limits/load.ts';
import { Shares } from './limits/shares.ts';
import { steadyClock } from './limits/steady-clock.ts';
import { Windows } from './limits/windows.ts';
import type { Log } from './log.ts';
import type { FetchProgress } from './model-files/meter.ts';
import { readProcess } from './metrics/process-readings.ts';
import { ServiceMetrics } from './metrics/service-metrics.ts';
import type { BackendReading } from './metrics/service-metrics.ts';
import { Constraints } from './pipeline/constraints.ts';
import { Idempotency } from './pipeline/idempotency.ts';
import { KeptItems } from './pipeline/kept-items.ts';
import { FileParts } from './pipeline/files.ts';
import { placesOf } from './pipeline/places.ts';
import type { Places } from './pipeline/places.ts';
import { Running } from './pipeline/running.ts';
import { SealKeys } from './pipeline/seals.ts';
import { Snapshots } from './pipeline/snapshot.ts';
import type { RequestLimits, Snapshot } from './pipeline/snapshot.ts';
import { Reloader } from './reload.ts';
import { StoreError } from './store/store-error.ts';
import { openStore } from './stores.ts';
import type { Store } from './stores.ts';
import { publicIdOf, uuidMaker } from './ids/uuid.ts';

export interface ServiceOptions {
  readonly config: Config;
  readonly environment: Environment;
  /** Of the program, for the metrics and for whoever asks the running service. */
  readonly version: string;
  /** Reads the configuration again while `running` is in force; throws `ConfigError`. */
  readonly readConfig: (running: Config) => Config;
  /** The file that is read, whether it is there or not. */
  readonly configFile: string;
  readonly log: Log;
  /** A part that the service cannot live without has died; end the process. */
  readonly onFatal: (error: Error) => void;
  readonly onDownload: (modelId: string, progress: FetchProgress) => void;
}

export interface Service {
  readonly inferenceUrl: string;
  readonly accountUrl: string;
  /** Set when this start made the first account: its key is shown once, now. */
  readonly firstAccount: FirstAccount | undefined;
  /** Those that the service started with. */
  readonly backends: readonly OpenBackend[];
  /** Names of the migrations that this start ran; all of them on a new database. */
  readonly migrated: readonly string[];
  /** Reads the configuration again; what is wrong with it is in the outcome. */
  reload(): Promise<ReloadOutcome>;
  /** Takes no new work, lets what runs end, at most for the configured time, and closes everything. */
  stop(): Promise<void>;
  /** Ends at once what still runs, each request with its error; for a stop that must not take longer. */
  cut(): void;
}

/** Last bytes of requests that were cut when the service stops. */
const drainGraceMs = 2_000;
const usageHoursEveryMs = 60_000;
const tidyItemsEveryMs = 60_000;

/**
 * Who needs whom: the one place where concrete engines and stores are put together. Resolves when both hosts listen;
 * models may still be on their way (`backends[].ready`). A start that fails leaves nothing open.
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const opened: (() => unknown)[] = [];
  try {
    return await start(options, opened);
  } catch (error) {
    // Ports, threads and engines that stay open would keep the process alive after it has said why it cannot run.
    for (const close of opened.toReversed()) await close();
    throw error;
  }
}

/** `opened` is given what closes each part, as soon as the part is open. */
async function start(options: ServiceOptions, opened: (() => unknown)[]): Promise<Service> {
  const { config, environment, log } = options;
  const running = new Running();

  const store = await openStore(config.storage, {
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

  // Pages and errors name the account host by its public address, which a free port (0) tells only when it listens.
  let accountUrl = publicUrl(config.server.account);
  const billing: Billing = new Billing({
    ledger: store.ledger,
    newId,
    now,
    topupUrl: () => `${accountUrl}/topup`,
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
    if (cut.kind === 'key_revoked') running.cancelKey(cut.keyId);
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
  const memory = feed.isShared ? { directory: undefined, caughtUp: () => feed.catchUp() } : { directory, prices };
  const operations = { ledger: store.ledger, desk: store.desk, secret, newId, now, ...memory };
  const downloads = new AbortController();
  const { limits } = config.server;
  const backendServices = {
    environment,
    log,
    memory: memoryBudgetOf(config.models, limits),
    onDownload: options.onDownload,
    stopping: downloads.signal,
  };
  const backends = config.models.flatMap((model) =>
    model.backends.map((backend) => openBackend(model, backend, { ...backendServices, limits })),
  );
  const admission = new Admission(limits.requestsRunningMax);
  // A machine's own clock may be set while requests are counted; the time of several is nobody's to set.
  const windowClock = feed.isShared ? now : steadyClock(now());
  const counts = await openCounts(store, windowClock, log, () => running.cancelAll('lost'));
  opened.push(() => counts.close());
  const { concurrencyPerAccountMax } = limits;
  const callerLimits = new Limits({ counts: counts.of, concurrencyPerAccountMax, plans: config.plans, wall: now });
  const bodyBudget = new BodyBudget(limits.bodiesInFlightBytesMax);
  const edge = {
    ...defaultEdgeLimits,
    headersTimeoutMs: limits.headersTimeoutMs,
    bodyTimeoutMs: limits.bodyTimeoutMs,
    bodyBytesPerSecondMin: limits.bodyBytesPerSecondMin,
    keepAliveTimeoutMs: limits.keepAliveTimeoutMs,
    readerStallMs: limits.readerStallTimeoutMs,
    connectionsMax: limits.connectionsMax,
    requestsPerConnectionMax: limits.requestsPerConnectionMax,
  };
  const closing = new Set<Promise<void>>();
  const snapshots = new Snapshots(snapshotOf(config, backends), (backend) => {
    const closed = backend.engine.close().finally(() => closing.delete(closed));
    closing.add(closed);
  });
  const reloader = new Reloader(config, backends, {
    read: options.readConfig,
    backendServices,
    log,
    apply: (next, nextBackends) => {
      snapshots.swap(snapshotOf(next, nextBackends, snapshots.current));
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
  const watched = watchFile(options.configFile, () => void reloader.reload());
  const reload = async (): Promise<ReloadOutcome> => {
    watched.note();
    return await reloader.reload();
  };
  opened.push(async () => {
    watched.close();
    downloads.abort(new Error('the service could not start'));
    await reloader.stop();
    await Promise.all(reloader.backends.map((backend) => backend.engine.close()));
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
    sockets: () => ({ inference: inferenceSockets(), account: accountSockets() }),
    logLinesDropped: () => log.linesDropped,
    backends: () => reloader.backends.map(readingOf),
    lines: () => [...snapshots.current.places].map(([model, { line }]) => ({ model, length: line.length })),
    config: () => ({
      version: reloader.version,
      failures: reloader.failures,
      lastSuccess: reloader.lastSuccess,
      leaving: snapshots.leaving,
    }),
  });
  const accountHost = createAccountHost(
    () => accountUrl,
    () => publicIdOf(newId()),
    {
      token: environment.metricsToken?.reveal(),
      isProxied: config.server.account.publicUrl !== undefined,
      text: () => metrics.text(),
    },
    edge,
  );
  const accountSockets = countSockets(accountHost);
  opened.push(() => accountHost.close());
  accountUrl = publicUrl(config.server.account, await listen(accountHost, config.server.account));

  const startedAt = Date.now();
  let urls: { readonly inferenceUrl: string; readonly accountUrl: string; readonly localUrl: string } | undefined =
    undefined;
  const control = await listenForControl(controlSocketPath(config.storage.directory), {
    operations,
    reload,
    status: () => ({
      version: options.version,
      pid: process.pid,
      startedAt,
      inferenceUrl: urls?.inferenceUrl,
      accountUrl: urls?.accountUrl,
      localUrl: urls?.localUrl,
      backends: reloader.backends.map(({ modelId, label, engine }) => ({ modelId, label, state: stateOf(engine) })),
    }),
  });
  opened.push(() => control.close());

  let stopping = false;
  const jsonThreads = new JsonThreads();
  opened.push(() => jsonThreads.close());
  const constraints = new Constraints();
  opened.push(() => constraints.close());
  const fetcher = new ImageFetcher();
  const inferenceHost = createInferenceHost(
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
    },
    { version: options.version, accountUrl, edge },
  );
  const inferenceSockets = countSockets(inferenceHost);
  const inferencePort = await listen(inferenceHost, config.server.inference);
  opened.push(() => inferenceHost.close());
  const endMonitor = monitorLoad({
    limits: limits.shedding,
    memoryBytesMax: limits.memoryBytesMax,
    judged: (rung, sample) => {
      const before = admission.rung;
      admission.judged(rung);
      if (rung === 3) inferenceHost.closeIdleConnections();
      if (rung !== before)
        log.service({
          level: rung >= 2 ? 'warn' : 'info',
          event: 'load',
          detail: {
            rung,
            lag_ms: Math.round(sample.lagMs),
            busy_percent: Math.round(sample.busyShare * 100),
            memory_percent: Math.round(sample.memoryShare * 100),
            running: admission.running,
          },
        });
    },
  });
  opened.push(endMonitor);
  // Last: its key is shown once, by whoever started us, which a start that fails on the way never does.
  const firstAccount = await store.alone(() => createFirstAccount(operations, config.accounts.firstCreditMicrocents));

  const usageHours = setInterval(() => {
    store.desk.recomputeUsageHours({ now: now() }).catch((error: unknown) => {
      log.service({
        level: 'warn',
        event: 'usage_hours_failed',
        detail: { code: error instanceof StoreError ? error.code : 'unexpected' },
      });
    });
  }, usageHoursEveryMs);
  usageHours.unref();

  let tidying: Promise<void> | undefined;
  const tidyItems = setInterval(() => {
    tidying ??= items.tidy().finally(() => (tidying = undefined));
    void idempotency.tidy();
    store.tidy().catch((error: unknown) => {
      const code = error instanceof StoreError ? error.code : 'unexpected';
      log.service({ level: 'warn', event: 'store_tidy_failed', detail: { code } });
    });
  }, tidyItemsEveryMs);
  tidyItems.unref();

  urls = {
    inferenceUrl: publicUrl(config.server.inference, inferencePort),
    accountUrl,
    localUrl: localUrl(config.server.inference, inferencePort),
  };
  return {
    ...urls,
    firstAccount,
    backends,
    migrated: store.migrated,
    reload,
    cut: () => running.cancelAll('drain'),
    stop: async () => {
      if (stopping) return;
      stopping = true;
      clearInterval(usageHours);
      clearInterval(tidyItems);
      processReadings.stop();
      endMonitor();
      watched.close();
      control.close();
      await reloader.stop();
      downloads.abort(new Error('the service is being stopped'));
      // Closed ports refuse new work; what has begun goes on.
      inferenceHost.close();
      inferenceHost.closeIdleConnections();
      await running.drain(reloader.config.server.limits.drainTimeoutMs, drainGraceMs);
      inferenceHost.closeAllConnections();
      accountHost.close();
      accountHost.closeAllConnections();
      const engines = reloader.backends.map((backend) => backend.engine.close());
      await Promise.all([jsonThreads.close(), ...engines, ...closing]);
      pdfs.close();
      await files.close();
      await feed.close();
      await counts.close();
      await store.close();
    },
  };
}

interface OpenCounts {
  readonly of: LimitCounts;
  /** What was counted is durable, and what was leased is given back. */
  close(): Promise<void>;
}

/** What is used of limits: by this process alone, or by all on its database. */
async function openCounts(store: Store, now: () => number, log: Log, lost: () => void): Promise<OpenCounts> {
  if (store.limits !== undefined) {
    const shares = new Shares({ leases: store.limits, now, lost });
    return { of: shares, close: () => shares.close() };
  }
  const windows = new Windows({
    store: {
      load: (request) => store.desk.loadLimitWindows(request),
      add: (changes) => store.desk.addLimitWindows({ changes }),
    },
    now,
    kept: (isKept) =>
      log.service({
        level: isKept ? 'info' : 'warn',
        event: isKept ? 'limits_written' : 'limits_unwritten',
        detail: {},
      }),
  });
  await windows.load();
  return { of: new Arbiter(windows), close: () => windows.write() };
}

/** All that requests read of a configuration, in one object: a request has the one that it began with. */
function snapshotOf(config: Config, backends: readonly OpenBackend[], before?: Snapshot): Snapshot {
  const waitMaxMs = config.server.limits.firstTokenTimeoutMs;
  return {
    catalog: new Catalog(config.models.map(modelOf)),
    limits: requestLimits(config.server.limits),
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

function stateOf(engine: Engine): 'starting' | 'ready' | 'failed' {
  const { state } = engine.status();
  return state === 'down' ? 'failed' : state;
}

/** How many connections a server has now. */
function countSockets(server: Server): () => number {
  let open = 0;
  server.on('connection', (socket) => {
    open++;
    socket.once('close', () => open--);
  });
  return () => open;
}

/** Resolves with the bound port. Rejects with the system's error, for example `EADDRINUSE`. */
function listen(server: Server, { host, port }: ListenConfig): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port, backlog: 1024 }, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}
