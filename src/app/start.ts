import { openOperating } from './account-host.ts';
import { drainTimesOf } from './listening.ts';
import type { Service, ServiceOptions } from './service.ts';
import { statusOf } from './backend-state.ts';
import { openServing } from './inference-host.ts';
import { recordersOf } from './recorded-traffic.ts';
import { modelWith } from './runtime-config-of.ts';

/**
 * The composition root: the only place where concrete engines and stores are put together. Resolves when both hosts listen;
 * models may still be loading (`backends[].ready`). A start that fails leaves nothing open.
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const opened: (() => unknown)[] = [];
  try {
    if (options.config.server.workers === 1) return await start(options, opened);
    const { startWithWorkers } = await import('./workers/parent.ts');
    return await startWithWorkers(options, opened);
  } catch (error) {
    // Open ports, threads and engines would keep the process alive after it has reported why it cannot run.
    for (const close of opened.toReversed()) await close();
    throw error;
  }
}

/** `opened` receives what closes each part, as soon as the part is open. */
async function start(options: ServiceOptions, opened: (() => unknown)[]): Promise<Service> {
  const { config, environment, version, log, onFatal, onDownload } = options;
  const serving = await openServing(
    {
      config,
      environment,
      version,
      log,
      onFatal,
      onDownload,
      accountUrl: () => operating.accountUrl,
      readings: () => ({
        config: operating.configReading(),
        accountSockets: operating.accountSockets(),
        jobs: operating.jobs.readings,
        metricsFailures: operating.metricsFailures(),
        sources: operating.sources(),
      }),
      processes: 1,
    },
    opened,
  );
  const { store, feed, secret, newId, now, rollout, files } = serving;
  const operating = await openOperating(
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
        followed: (changes) => feed.catchUp(changes),
      },
      files,
      prepare: (next, signal) => rollout.prepare(next, signal),
      figures: () => serving.metrics.figures(),
      modelOf: (model) => modelWith(model, rollout.backends),
      isReady: () => serving.isReady(),
      backends: () => rollout.backends.map(statusOf),
      recorders: () => recordersOf(serving.traffic),
    },
    opened,
  );
  await operating.discover();
  const { backends } = rollout;
  const begun = await operating.begin(await serving.listen());
  let isStopping = false;
  return {
    ...begun,
    backends,
    migrated: store.migrated,
    reload: () => operating.reload(),
    cut: () => serving.cut(),
    stop: async (how) => {
      if (isStopping) return;
      isStopping = true;
      await Promise.all([operating.quiet(), serving.drain(drainTimesOf(operating.config().server, how))]);
      await operating.close();
      await serving.close();
    },
  };
}
