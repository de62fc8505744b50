import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { createAccountHost } from './account-api/server.ts';
import { Directory } from './accounts/directory.ts';
import { createFirstAccount } from './accounts/first-account.ts';
import type { FirstAccount } from './accounts/first-account.ts';
import { openSecret } from './accounts/secret.ts';
import { Billing } from './billing/billing.ts';
import { Catalog } from './catalog/catalog.ts';
import { textCapabilities } from './catalog/model.ts';
import type { Model } from './catalog/model.ts';
import type { Config, ListenConfig, ModelConfig } from './config/config.ts';
import type { Environment } from './config/environment.ts';
import { publicUrl } from './config/public-url.ts';
import { listenForControl } from './control/server.ts';
import { controlSocketPath } from './control/socket-path.ts';
import { openBackends } from './backends.ts';
import type { OpenBackend } from './backends.ts';
import { createInferenceHost } from './http/server.ts';
import { Concurrency } from './limits/concurrency.ts';
import type { Log } from './log.ts';
import type { FetchProgress } from './model-files/meter.ts';
import type { Backend } from './pipeline/dispatch.ts';
import { Running } from './pipeline/running.ts';
import { openSqliteStore } from './store/sqlite/store.ts';
import { StoreError } from './store/store-error.ts';
import { publicIdOf, uuidMaker } from './ids/uuid.ts';

export interface ServiceOptions {
  readonly config: Config;
  readonly environment: Environment;
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
  readonly backends: readonly OpenBackend[];
  /** Takes no new work, lets what runs end, at most for the configured time, and closes everything. */
  stop(): Promise<void>;
}

/** Last bytes of requests that were cut when the service stops. */
const drainGraceMs = 2_000;
const usageHoursEveryMs = 60_000;

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
  const { limits } = config.server;
  const newId = uuidMaker();
  const running = new Running();

  const store = await openSqliteStore({
    file: config.storage.path,
    free: {
      // The ledger asks for free balances, and they live in billing, which needs the ledger.
      credit: (accountId, microcents) => billing.credit(accountId, microcents),
      reserve: (accountId, microcents) => billing.reserve(accountId, microcents),
    },
    onFatal: options.onFatal,
    log: (level, message) => log.service({ level, event: 'store', detail: { message } }),
  });
  opened.push(() => store.close());

  // Pages and errors name the account host by its public address, which a free port (0) tells only when it listens.
  let accountUrl = publicUrl(config.server.account);
  const billing: Billing = new Billing({
    ledger: store.ledger,
    newId,
    topupUrl: () => `${accountUrl}/topup`,
    log: (event) =>
      log.service({
        level: event.event === 'settlement_repaired' ? 'warn' : 'error',
        event: event.event,
        detail: { request: event.requestId, tries: event.tries, refund_microcents: event.refundMicrocents },
      }),
  });

  const secret = openSecret({
    fromEnvironment: environment.secret?.reveal(),
    dataFolder: config.storage.directory,
    warn: (message) => log.service({ level: 'warn', event: 'secret', detail: { message } }),
  });
  const directory = new Directory(secret);
  for (let after: string | undefined; ;) {
    const page = await store.desk.loadKeys({ ...(after === undefined ? {} : { after }) });
    directory.load(page);
    after = page.at(-1)?.id;
    if (after === undefined) break;
  }
  directory.listen((cut) => {
    if (cut.kind === 'key_revoked') running.cancelKey(cut.keyId);
    else running.cancelAccount(cut.accountId);
  });

  const operations = { ledger: store.ledger, desk: store.desk, secret, newId, directory };
  const control = await listenForControl(controlSocketPath(config.storage.directory), operations);
  opened.push(() => control.close());

  const accountHost = createAccountHost(
    () => accountUrl,
    () => publicIdOf(newId()),
  );
  opened.push(() => accountHost.close());
  accountUrl = publicUrl(config.server.account, await listen(accountHost, config.server.account));

  const downloads = new AbortController();
  const backendServices = { environment, limits, log, onDownload: options.onDownload, stopping: downloads.signal };
  const backends = config.models.flatMap((model) => openBackends(model, backendServices));
  opened.push(() => {
    downloads.abort(new Error('the service could not start'));
    return Promise.all(backends.map((backend) => backend.engine.close()));
  });
  // Whoever waits for `ready` sees the failure; nobody has to.
  for (const backend of backends) backend.ready.catch(() => {});
  const byModel = new Map<string, readonly Backend[]>(
    config.models.map(({ id }) => [id, backends.filter((backend) => backend.modelId === id)]),
  );
  let stopping = false;
  const inferenceHost = createInferenceHost(
    {
      directory,
      catalog: new Catalog(config.models.map(modelOf)),
      newId,
      running,
      log,
      billing,
      concurrency: new Concurrency(limits.concurrencyPerAccountMax),
      backendsOf: (modelId) => byModel.get(modelId) ?? [],
      ready: () => !stopping,
    },
    {
      accountUrl,
      primeMs: limits.primeTimeoutMs,
      keepAliveMs: limits.primeTimeoutMs,
      readerStallMs: limits.readerStallTimeoutMs,
      bodyBytesMax: limits.bodyBytesMax,
      bodiesInFlightBytesMax: limits.bodiesInFlightBytesMax,
      requestDeadlineMs: limits.requestTimeoutMs,
    },
  );
  const inferencePort = await listen(inferenceHost, config.server.inference);
  opened.push(() => inferenceHost.close());
  // Last: its key is shown once, by whoever started us, which a start that fails on the way never does.
  const firstAccount = await createFirstAccount(operations, config.accounts.firstCreditMicrocents);

  const usageHours = setInterval(() => {
    store.desk.recomputeUsageHours({ now: Date.now() }).catch((error: unknown) => {
      log.service({
        level: 'warn',
        event: 'usage_hours_failed',
        detail: { code: error instanceof StoreError ? error.code : 'unexpected' },
      });
    });
  }, usageHoursEveryMs);
  usageHours.unref();

  return {
    inferenceUrl: publicUrl(config.server.inference, inferencePort),
    accountUrl,
    firstAccount,
    backends,
    stop: async () => {
      if (stopping) return;
      stopping = true;
      clearInterval(usageHours);
      control.close();
      downloads.abort(new Error('the service is being stopped'));
      // Closed ports refuse new work; what has begun goes on.
      inferenceHost.close();
      inferenceHost.closeIdleConnections();
      await running.drain(limits.drainTimeoutMs, drainGraceMs);
      inferenceHost.closeAllConnections();
      accountHost.close();
      accountHost.closeAllConnections();
      await Promise.all(backends.map((backend) => backend.engine.close()));
      await store.close();
    },
  };
}

function modelOf(config: ModelConfig): Model {
  const { pricing } = config;
  return {
    id: config.id,
    displayName: config.displayName,
    description: config.description,
    ownedBy: config.ownedBy,
    contextLength: config.contextLength,
    maxOutputTokens: config.maxOutputTokens,
    prices: {
      input: pricing.inputMicrocentsPerMillion,
      output: pricing.outputMicrocentsPerMillion,
      cacheRead: pricing.cacheReadMicrocentsPerMillion,
    },
    sampling: config.sampling,
    capabilities: textCapabilities,
  };
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
