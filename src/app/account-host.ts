import { stat, statfs } from 'node:fs/promises';
import type { Server } from 'node:http';
import { fileURLToPath } from 'node:url';

import { createAccountHost } from '../account-api/account-server.ts';
import type { AccountHostOptions } from '../account-api/account-server.ts';
import type { AccountServices, SystemReading } from '../account-api/services.ts';
import { createFirstAccount } from '../accounts/first-account.ts';
import type { FirstAccount } from '../accounts/first-account.ts';
import { firstOwnerLink, ownerLinkUrl } from '../accounts/owner.ts';
import type { OperationServices } from '../accounts/operation.ts';
import type { Config, StorageConfig } from '../config/config.ts';
import { ConfigEditor } from '../config/editor.ts';
import type { Environment } from '../config/environment.ts';
import { configSchema } from '../config/schema.ts';
import { inferenceUrlFor, localUrl, publicUrl } from '../config/public-url.ts';
import type { ReloadOutcome } from '../config/reload-outcome.ts';
import { listenForControl } from './control/control-server.ts';
import { controlSocketPath } from './control/socket-path.ts';
import type { BackendStatus, ServiceStatus } from './control/status.ts';
import { openPayments } from '../billing/payments/open.ts';
import type { Paying } from '../billing/payments/open.ts';
import { consoleUrl, docsUrl } from '../platform/entries.ts';
import { hourMs } from '../platform/calendar/time-zone.ts';
import { publicIdOf } from '../platform/ids/uuid.ts';
import { followConfiguration } from './config-watcher.ts';
import type { ConfigWatcher } from './config-watcher.ts';
import { countSockets, listen } from './listening.ts';
import { claimsTester } from './claims.ts';
import { lookAtBackends } from './look.ts';
import { Jobs } from '../platform/jobs/jobs.ts';
import type { Job } from '../platform/jobs/jobs.ts';
import type { Log } from '../platform/log.ts';
import { Outbox } from '../notifications/mail/outbox.ts';
import { printFigures } from '../platform/metrics/figures.ts';
import type { FamilyFigures } from '../platform/metrics/figures.ts';
import type { ConfigReading } from '../platform/metrics/service-readings.ts';
import { Users } from '../accounts/users/users.ts';
import type { SourceStatus } from './discovery/source-servers.ts';
import type { ReloadServices } from './reload.ts';
import { UsageHeads } from './usage-heads.ts';
import { UsageRemoval } from './usage-removal.ts';
import { moveRetention } from './usage-retention.ts';
import { StoreError } from '../store/store-error.ts';
import type { Store } from './stores.ts';
import { openMetrics } from './telemetry-exports.ts';
import { TrafficHistory } from './traffic-history.ts';
import { ModelAdditions } from './model-additions.ts';
import { trafficHandlers, type Recorders } from './recorded-traffic.ts';
import { serverProbe } from './probed-server.ts';
import { openNotifications } from './notifications.ts';
import type { Notifications } from './notifications.ts';

export interface OperatingOptions {
  readonly config: Config;
  readonly environment: Environment;
  readonly version: string;
  readonly log: Log;
  /** Reads the configuration again while `running` is in force, or in its place a text; throws `ConfigError`. */
  readonly readConfig: (running: Config, text?: string) => Config;
  /** The path of the configuration file, which may not exist. */
  readonly configFile: string;
  readonly store: Pick<Store, 'alone' | 'repositories' | 'now' | 'tidy'>;
  readonly operations: OperationServices;
  readonly files: NonNullable<AccountServices['files']>;
  /** Prepares everything that answers requests for a configuration. */
  readonly prepare: ReloadServices['prepare'];
  /** The figures of all processes. */
  readonly figures: () => readonly FamilyFigures[] | Promise<readonly FamilyFigures[]>;
  readonly backends: () => readonly BackendStatus[] | Promise<readonly BackendStatus[]>;
  readonly modelOf: NonNullable<AccountServices['modelOf']>;
  readonly recorders: () => Recorders;
  /** Whether a load balancer should send work to the inference host. */
  readonly isReady: () => Promise<boolean>;
}

export interface Urls {
  readonly inferenceUrl: string;
  readonly accountUrl: string;
  /** The address of the API on this computer. */
  readonly localUrl: string;
}

/** The operator's side of the service. */
export interface Operating {
  /** Address of the account host, as errors and pages name it. */
  readonly accountUrl: string;
  readonly accountSockets: () => number;
  /** Failed posts of metrics to a collector. */
  readonly metricsFailures: () => number;
  readonly configReading: () => ConfigReading;
  readonly sources: () => readonly SourceStatus[];
  /** Recurring work beside the requests, from `begin` to `quiet`. */
  readonly jobs: Jobs;
  /** The configuration in force. */
  readonly config: () => Config;
  reload(): Promise<ReloadOutcome>;
  /** Finds backends that are not in the file, before requests are answered, as far as their sources answer in time. */
  discover(): Promise<void>;
  /** Called when requests are answered at this port: the status reports it, and a new database gets its first account. */
  begin(
    inferencePort: number,
  ): Promise<Urls & { readonly firstAccount: FirstAccount | undefined; readonly ownerLink: string | undefined }>;
  /** Takes no more operator requests. */
  quiet(): Promise<void>;
  /** Closes the account host, and sends and keeps the metrics a last time. */
  close(): Promise<void>;
}

const tidyEveryMs = 60_000;
const forgetEveryMs = 600_000;

/**
 * Opens the operator's side of the service: the account host with pages and metrics, the control socket, and the configuration
 * file, which is read again when it changes. `opened` receives what closes each part, as soon as it is open.
 */
export async function openOperating(options: OperatingOptions, opened: (() => unknown)[]): Promise<Operating> {
  const { config, store, operations } = options;
  const configWatcher = followConfiguration({
    ...options,
    repositories: store.repositories,
    now: () => store.now(),
  });
  opened.push(() => configWatcher.close());
  // Pages and errors contain the account host's public address; with port 0 it is known only once the host listens.
  let accountUrl = publicUrl(config.server.account);
  const startedAt = Date.now();
  const system = () => systemReading(options, startedAt, configWatcher, jobs);
  const looks = () => lookAtBackends(configWatcher.config(), options.log);
  const services = { ...options, system, lookAtBackends: looks };
  const parts = openParts(services, configWatcher.config, () => accountUrl, opened);
  const { outbox, jobs, notifications, paying } = parts;
  let urls: Urls | undefined;
  let inferencePort: number | undefined;
  const accountHost = openAccountHost(options, configWatcher, parts, (host) =>
    inferencePort === undefined ? undefined : inferenceUrlFor(config.server, inferencePort, host),
  );
  opened.push(() => accountHost.close());
  const accountSockets = countSockets(accountHost);
  accountUrl = publicUrl(config.server.account, await listen(accountHost, config.server.account));

  const history = new TrafficHistory({ ...options, repositories: store.repositories, now: () => store.now() });
  jobs.add(history.job);
  const metrics = openMetrics(options, options.figures);
  opened.push(() => metrics?.close());
  const control = await listenForControl(controlSocketPath(config.storage.directory), {
    operations,
    service: {
      ...notifications.handlers,
      ...trafficHandlers(options, configWatcher.config),
      reload: () => configWatcher.reload(),
      service_status: () => statusOf(options, startedAt, urls, configWatcher),
    },
  });
  opened.push(() => control.close());

  const begin: Operating['begin'] = async (boundPort) => {
    // Last, because the caller displays its key only once, and only after a successful start.
    const firstAccount = await store.alone(() => createFirstAccount(operations, config.accounts.firstCreditMicrocents));
    jobs.start();
    outbox.start();
    // A process that starts concurrently on the same new database waits, and gets the same link.
    const link = await store.alone(() => firstOwnerLink(operations));
    paying.begin();
    inferencePort = boundPort;
    urls = {
      inferenceUrl: publicUrl(config.server.inference, boundPort),
      accountUrl,
      localUrl: localUrl(config.server.inference, boundPort),
    };
    return {
      ...urls,
      firstAccount,
      ownerLink: link === undefined ? undefined : ownerLinkUrl(accountUrl, link.token),
    };
  };
  return {
    accountUrl,
    accountSockets,
    metricsFailures: () => metrics?.failures ?? 0,
    jobs,
    configReading: configWatcher.reading,
    sources: configWatcher.sources,
    discover: configWatcher.begin,
    config: configWatcher.config,
    reload: configWatcher.reload,
    begin,
    quiet: async () => {
      control.close();
      await Promise.all([configWatcher.close(), jobs.close(), outbox.close(), paying.close()]);
    },
    close: async () => {
      accountHost.close();
      accountHost.closeAllConnections();
      await Promise.all([metrics?.close(), history.close()]);
    },
  };
}

async function statusOf(
  { version, backends }: OperatingOptions,
  startedAt: number,
  urls: Urls | undefined,
  { sources }: ConfigWatcher,
): Promise<ServiceStatus> {
  return {
    version,
    pid: process.pid,
    startedAt,
    inferenceUrl: urls?.inferenceUrl,
    accountUrl: urls?.accountUrl,
    localUrl: urls?.localUrl,
    backends: await backends(),
    sources: sources(),
  };
}

/** Parts that the routes of the account host use. */
interface Parts {
  readonly outbox: Outbox;
  readonly jobs: Jobs;
  readonly notifications: Notifications;
  readonly paying: Paying;
  readonly services: AccountServices;
}

function openParts(
  options: OperatingOptions & Required<Pick<AccountServices, 'system' | 'lookAtBackends'>>,
  config: () => Config,
  accountUrl: () => string,
  opened: (() => unknown)[],
): Parts {
  const { log, store, operations, files, backends, modelOf, system, lookAtBackends: looks } = options;
  const outbox = new Outbox({
    repositories: store.repositories,
    config: () => config().mail,
    log,
    newId: operations.newId,
    now: () => store.now(),
  });
  opened.push(() => outbox.close());
  const jobs = new Jobs({
    alone: (work) => store.alone(work),
    log,
    codeOf: (error) => (error instanceof StoreError ? error.code : 'unexpected'),
  });
  opened.push(() => jobs.close());

  const modelAdditions = new ModelAdditions(options.configFile, () => store.now());
  opened.push(() => modelAdditions.stop());

  const shared = { operations, config, accountUrl, mailer: outbox };
  const users = new Users(shared);
  const notifications = openNotifications({ ...shared, log, jobs, payments: () => paying.payments });
  const paying: Paying = openPayments({ ...shared, log, moved: notifications.paymentMoved });
  opened.push(() => paying.close());
  const removal = new UsageRemoval(store);
  const heads = new UsageHeads(operations);
  const ownJobs: readonly Job[] = [
    { name: 'usage_hours', everyMs: tidyEveryMs, runs: 'anywhere', run: addingUp(store) },
    { name: 'usage_heads', everyMs: tidyEveryMs, runs: 'anywhere', run: (signal) => heads.run(roundMs, signal) },
    { name: 'usage_retention', everyMs: forgetEveryMs, runs: 'alone', run: () => moveRetention({ ...shared, log }) },
    { name: 'usage_removal', everyMs: tidyEveryMs, runs: 'anywhere', run: (signal) => removeUsage(removal, signal) },
    { name: 'errors_tidy', everyMs: tidyEveryMs, runs: 'alone', run: () => tidyErrors(store) },
    { name: 'store_tidy', everyMs: tidyEveryMs, runs: 'anywhere', run: () => store.tidy() },
    { name: 'mail_tidy', everyMs: forgetEveryMs, runs: 'alone', run: () => outbox.tidy() },
    { name: 'people_tidy', everyMs: forgetEveryMs, runs: 'alone', run: () => users.tidy() },
  ];
  for (const job of [...ownJobs, ...paying.jobs]) jobs.add(job);
  return {
    outbox,
    jobs,
    notifications,
    paying,
    services: {
      ...shared,
      ...notifications,
      users,
      payments: paying.payments,
      demo: paying.demo,
      files,
      backends,
      modelOf,
      system,
      lookAtBackends: looks,
      modelAdditions,
    },
  };
}

function openAccountHost(
  options: OperatingOptions,
  watcher: ConfigWatcher,
  { services }: Parts,
  inferenceUrl: AccountHostOptions['inferenceUrl'],
): Server {
  const { config, environment, version, operations, figures, isReady, log } = options;
  const { listener, trustedProxies, sources } = watcher;
  const configEditor = new ConfigEditor({
    file: options.configFile,
    schema: configSchema(),
    read: (text) => options.readConfig(watcher.config(), text),
    reload: watcher.reload,
  });
  return createAccountHost(
    {
      ...services,
      inferenceUrl,
      sources,
      configEditor,
      probeServer: serverProbe(environment),
      lookAtClaims: claimsTester(watcher.config),
    },
    {
      version,
      newRequestId: () => publicIdOf(operations.newId()),
      metrics: {
        token: environment.metricsToken?.reveal(),
        isProxied: config.server.account.publicUrl !== undefined,
        text: async () => printFigures(await figures()),
      },
      limits: listener,
      trustedProxies,
      inferenceUrl,
      consoleFolder: fileURLToPath(consoleUrl()),
      docsFolder: fileURLToPath(docsUrl()),
      isReady,
      failed: (error, publicId) =>
        log.service({
          level: 'error',
          event: 'account_request_failed',
          detail: { request: publicId, ...reasonOf(error) },
        }),
    },
  );
}

async function systemReading(
  { version, figures, config }: OperatingOptions,
  startedAt: number,
  configWatcher: ConfigWatcher,
  jobs: Jobs,
): Promise<SystemReading> {
  return {
    version,
    startedAt,
    figures: await figures(),
    configuration: configWatcher.reading(),
    jobs: jobs.readings,
    disk: await diskOf(config.storage),
  };
}

/** The size of a database file and the space left for it; null if it is not a file, or cannot be read. */
async function diskOf(storage: StorageConfig): Promise<{ readonly bytes: number; readonly freeBytes: number } | null> {
  if (storage.type !== 'sqlite') return null;
  try {
    const [main, wal, { bavail, bsize }] = await Promise.all([
      stat(storage.path),
      // Not in the main file yet.
      stat(`${storage.path}-wal`).catch(() => undefined),
      statfs(storage.directory),
    ]);
    return { bytes: main.size + (wal?.size ?? 0), freeBytes: bavail * bsize };
  } catch {
    return null;
  }
}

/** Each round is short, so that reports can run in between; the rest is summed a minute later. */
const daysRoundsMax = 100;

/** Sums usage for reports: hours once in each hour, since looking for missed ones reads something of every account. */
function addingUp(store: Pick<Store, 'repositories' | 'now'>): () => Promise<void> {
  let summedIn: number | undefined;
  let summedUntil: number | undefined;
  return async () => {
    const now = store.now();
    const hour = Math.floor(now / hourMs);
    if (hour !== summedIn)
      summedUntil = (await store.repositories.recomputeUsageHours({ now, since: summedUntil })).until ?? summedUntil;
    summedIn = hour;
    for (let rounds = 0; rounds < daysRoundsMax; rounds++)
      if (!(await store.repositories.recomputeUsageDays({})).isMore) return;
  };
}

/** Length of a run of the job, after which other jobs, and a stop, get their turn. */
const roundMs = 2_000;

/** Returns true if there is more to remove. */
const removeUsage = async (removal: UsageRemoval, signal: AbortSignal): Promise<boolean> =>
  (await removal.run(roundMs, signal)).state === 'more';

/** Sums old counts of errors by the hour; true: there is more to sum. */
const tidyErrors = async ({ repositories, now }: Pick<Store, 'repositories' | 'now'>): Promise<boolean> =>
  (await repositories.tidyErrors({ now: now() })).isMore;

/** Names of what failed, without text that may hold client input. */
function reasonOf(error: unknown): { readonly code: string } {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  if (cause instanceof StoreError) return { code: cause.code };
  return { code: cause instanceof Error ? cause.name : 'unexpected' };
}
