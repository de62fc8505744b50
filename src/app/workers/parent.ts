import { openSecret } from '../../accounts/secret.ts';
import type { Config } from '../../config/config.ts';
import { uuidMaker } from '../../platform/ids/uuid.ts';
import type { ProcessReadings } from '../../platform/metrics/process-readings.ts';
import { ServiceMetrics } from '../../platform/metrics/service-metrics.ts';
import { openOperating } from '../account-host.ts';
import { modelOf } from '../model-of.ts';
import type { Operating } from '../account-host.ts';
import { drainTimesOf } from '../listening.ts';
import type { HowStopped } from '../listening.ts';
import type { Service, ServiceOptions, StartedBackend } from '../service.ts';
import { openFiles } from '../kept-for-requests.ts';
import { openStore } from '../stores.ts';
import { watchProcess } from '../watch-process.ts';
import { Pool } from './pool.ts';

/**
 * The service as one parent with workers that answer its requests, each a separate replica on the ledger. The parent is another,
 * and has the operator's side. `opened` receives what closes each part, as soon as the part is open.
 */
export async function startWithWorkers(options: ServiceOptions, opened: (() => unknown)[]): Promise<Service> {
  const { config, environment, version, log, onFatal } = options;
  const store = await openStore(config.storage, {
    onFatal,
    onBatch: (rows, elapsedMs, isRefused) => metrics.ledgerBatch(rows, elapsedMs, isRefused),
    log: (level, message) => log.service({ level, event: 'store', detail: { message } }),
  });
  opened.push(() => store.close());
  const now = (): number => store.now();
  const newId = uuidMaker(now);
  // Before the workers read it, because it is created here if there is none.
  const secret = openSecret({
    fromEnvironment: environment.secret?.reveal(),
    dataFolder: config.storage.directory,
    warn: (message) => log.service({ level: 'warn', event: 'secret', detail: { message } }),
  });
  const pool = new Pool({
    entry: options.workerEntry,
    count: config.server.workers,
    config,
    version,
    accountUrl: () => operating.accountUrl,
    log,
    onFatal,
  });
  const files = openFiles({ config, environment, log, store, now });
  opened.push(() => files.close());
  const { loop, processReadings } = watchProcess(opened);
  const metrics: ServiceMetrics = parentMetrics(options, processReadings, () => operating, pool);
  const operating: Operating = await openOperating(
    {
      config,
      environment,
      version,
      log,
      readConfig: options.readConfig,
      configFile: options.configFile,
      store,
      operations: {
        ledger: store.ledger,
        repositories: store.repositories,
        secret,
        newId,
        now,
        followed: () => pool.catchUp(),
      },
      files,
      prepare: (next, signal) => pool.prepare(next, signal),
      figures: () => pool.figures(metrics.figures()),
      backends: () => pool.backends(),
      recorders: () => pool.recorders(),
      modelOf,
      isReady: async () => (store.isAnswering?.() ?? true) && (await pool.isReady()),
    },
    opened,
  );
  opened.push(() => pool.stop({ drainDelayMs: 0, drainTimeoutMs: 0 }));
  await operating.discover();
  const begun = await operating.begin(await pool.start());
  const close = async (how?: HowStopped): Promise<void> => {
    await Promise.all([operating.quiet(), pool.stop(drainTimesOf(operating.config().server, how))]);
    await Promise.all([operating.close(), files.close()]);
    processReadings.stop();
    loop.stop();
    await store.close();
  };
  let stopped: Promise<void> | undefined;
  return {
    ...begun,
    backends: backendsOf(operating.config()),
    migrated: store.migrated,
    reload: () => operating.reload(),
    cut: () => pool.cut(),
    stop: (how) => (stopped ??= close(how)),
  };
}

/** The workers have the requests; the parent has none and adds nothing. */
function parentMetrics(
  { version, log }: ServiceOptions,
  processReadings: ProcessReadings,
  operating: () => Operating,
  pool: Pool,
): ServiceMetrics {
  const none = (): number => 0;
  return new ServiceMetrics({
    version,
    process: processReadings,
    requestsRunning: none,
    openHolds: none,
    heldMicrocents: () => 0n,
    settlementsWaiting: none,
    bodyBytes: none,
    work: () => [],
    sockets: () => ({ inference: 0, account: operating().accountSockets() }),
    logLinesDropped: () => log.linesDropped,
    telemetry: () => ({
      spans: { sent: 0, dropped: 0 },
      failures: { traces: 0, metrics: operating().metricsFailures() },
    }),
    peerReports: () => ({ sent: 0, heard: 0 }),
    backends: () => [],
    models: () => [],
    config: () => ({ ...operating().configReading(), leaving: 0 }),
    workers: () => pool.serving,
    workersEnded: () => pool.ended,
    jobs: () => operating().jobs.readings,
    sources: () => operating().sources(),
  });
}

/** Workers' backends are servers, which are ready immediately, because this service does not load their models. */
const backendsOf = ({ models }: Config): readonly StartedBackend[] =>
  models.flatMap(({ id, contextLength, backends }) =>
    backends.map((backend) => ({
      modelId: id,
      contextLength,
      label: backend.name,
      config: backend,
      ready: Promise.resolve(),
      modelFile: undefined,
      compute: () => undefined,
    })),
  );
