import { openSecret } from '../../accounts/secret.ts';
import { openLimitServer } from '../counts.ts';
import { uuidMaker } from '../../platform/ids/uuid.ts';
import { steadyClock } from '../../billing/rate-limits/steady-clock.ts';
import { printFigures } from '../../platform/metrics/figures.ts';
import { readProcess } from '../../platform/metrics/process-readings.ts';
import { ServiceMetrics } from '../../platform/metrics/service-metrics.ts';
import { openOperating } from '../account-host.ts';
import type { Operating } from '../account-host.ts';
import type { Service, ServiceOptions } from '../service.ts';
import { openSharedStore } from '../stores.ts';
import { leaseLimits } from './worker-limits.ts';
import { Pool } from './pool.ts';

/**
 * The service as one parent with workers that answer its requests. The parent owns the books and has the operator's side;
 * `opened` is given what closes each part, as soon as the part is open.
 */
export async function startWithWorkers(options: ServiceOptions, opened: (() => unknown)[]): Promise<Service> {
  const { config, environment, version, log, onFatal } = options;
  const { store, serve } = await openSharedStore(config.storage, {
    onFatal,
    onBatch: (rows, elapsedMs, isRefused) => metrics.ledgerBatch(rows, elapsedMs, isRefused),
    log: (level, message) => log.service({ level, event: 'store', detail: { message } }),
  });
  opened.push(() => store.close());
  const now = (): number => store.now();
  const newId = uuidMaker(now);
  // Before the workers read it: if there is none, it is made here.
  const secret = openSecret({
    fromEnvironment: environment.secret?.reveal(),
    dataFolder: config.storage.directory,
    warn: (message) => log.service({ level: 'warn', event: 'secret', detail: { message } }),
  });
  // On PostgreSQL limits are in the database, and each worker leases from there.
  const limitClock = steadyClock(now());
  const limits = config.storage.type === 'sqlite' ? await openLimitServer(store, limitClock, log) : undefined;
  opened.push(() => limits?.close());
  const pool = new Pool({
    entry: options.workerEntry,
    count: config.server.workers,
    config,
    version,
    accountUrl: () => operating.accountUrl,
    log,
    serve: async (link, replicaId) => {
      const served = await serve(link, replicaId);
      if (limits === undefined) return served;
      const holder = Buffer.from(replicaId).toString('hex');
      leaseLimits(link, limits.limitServer, holder);
      return {
        end: async () => {
          limits.limitServer.drop(holder);
          await served.end();
        },
      };
    },
    newId,
    limitClock,
    onFatal,
  });
  const processReadings = readProcess();
  opened.push(() => processReadings.stop());
  // The workers have the requests; there are none here, which adds nothing.
  const none = (): number => 0;
  const metrics: ServiceMetrics = new ServiceMetrics({
    version,
    process: processReadings,
    requestsRunning: none,
    openHolds: none,
    heldMicrocents: () => 0n,
    settlementsWaiting: none,
    bodyBytes: none,
    sockets: () => ({ inference: 0, account: operating.accountSockets() }),
    logLinesDropped: () => log.linesDropped,
    backends: () => [],
    lines: () => [],
    config: () => ({ ...operating.configReading(), leaving: 0 }),
    workers: () => pool.serving,
    workersEnded: () => pool.ended,
    jobs: () => operating.jobs.readings,
  });
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
      prepare: (next, signal) => pool.prepare(next, signal),
      metricsText: async () => printFigures(await pool.figures(metrics.figures())),
      backends: () => pool.backends(),
    },
    opened,
  );
  opened.push(() => pool.stop(0));
  const begun = await operating.begin(await pool.start());
  let isStopping = false;
  return {
    ...begun,
    backends: config.models.flatMap(({ id, contextLength, backends }) =>
      backends.map((backend) => ({
        modelId: id,
        contextLength,
        label: backend.name,
        config: backend,
        ready: Promise.resolve(),
        modelFile: undefined,
      })),
    ),
    migrated: store.migrated,
    reload: () => operating.reload(),
    cut: () => pool.cut(),
    stop: async () => {
      if (isStopping) return;
      isStopping = true;
      await Promise.all([operating.quiet(), pool.stop(operating.config().server.limits.drainTimeoutMs)]);
      operating.close();
      processReadings.stop();
      await limits?.close();
      await store.close();
    },
  };
}
