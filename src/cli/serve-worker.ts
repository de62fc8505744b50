/** A worker: answers requests in a separate process, and lives as long as the parent that started it. */
import '../platform/stack-traces.ts';

import { once } from 'node:events';
import process from 'node:process';

import { configOf } from '../config/portable.ts';
import type { PortableConfig } from '../config/portable.ts';
import { readEnvironment } from '../config/environment.ts';
import { createLog } from '../platform/log.ts';
import { statusOf } from '../app/backend-state.ts';
import { openServing } from '../app/inference-host.ts';
import type { Serving } from '../app/inference-host.ts';
import { drainTimesOf } from '../app/listening.ts';
import type { DrainTimes } from '../app/listening.ts';
import type { Prepared } from '../app/config-rollout.ts';
import { LogLine } from '../app/workers/log-line.ts';
import { workerErrors } from '../app/workers/messages.ts';
import type { BeginWorker, ParentCalls, ParentConnection, WorkerBegan, WorkerCalls } from '../app/workers/messages.ts';
import { Rpc } from '../platform/rpc/rpc.ts';
import { ProcessTransport, type ProcessChannel } from '../platform/rpc/transport.ts';
import { shareOf } from '../app/workers/share.ts';
import { crashExitCode, watchForCrashes } from './crash.ts';
import { outliveReaders } from './output.ts';

outliveReaders();
// A terminal and a service manager signal the whole group; the parent decides about its workers.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
// Nobody would restart it, or send it a new configuration, and another parent may need the port.
void once(process, 'disconnect').then(() => process.exit(crashExitCode));

const parent: ParentConnection = new Rpc<ParentCalls, WorkerCalls>(
  new ProcessTransport(process as unknown as ProcessChannel),
  { handlers: { begin }, errors: workerErrors, onBroken: () => process.exit(crashExitCode) },
);
parent.note('awake', null);

async function begin(given: BeginWorker): Promise<WorkerBegan> {
  const { index, count, version } = given;
  const read = (portable: PortableConfig) => shareOf(configOf(portable), index, count);
  const whole = read(given.config);
  const { inference } = whole.server;
  const config = {
    ...whole,
    server: { ...whole.server, inference: { ...inference, port: given.port } },
  };
  const log = createLog(new LogLine(parent));
  /** Empty until it is open. */
  const running: { serving?: Serving } = {};
  let isStopping = false;
  const stop = async (times: DrainTimes, exitCode: number): Promise<void> => {
    if (isStopping) return;
    isStopping = true;
    await running.serving?.drain(times);
    await running.serving?.close();
    await log.flush();
    await parent.flush();
    process.exit(exitCode);
  };
  watchForCrashes({
    log,
    stop: () => void stop(drainTimesOf(config.server, { takesNothing: true }), crashExitCode),
    cut: () => running.serving?.cut(),
  });
  const serving = await openServing(
    {
      config,
      environment: readEnvironment(),
      version,
      log,
      onFatal: () => process.exit(crashExitCode),
      onDownload: () => {},
      accountUrl: () => given.accountUrl,
      readings: () => ({
        config: { version: 0, failures: 0, lastSuccess: true },
        accountSockets: 0,
        jobs: [],
        metricsFailures: 0,
        sources: [],
      }),
      processes: count,
    },
    [],
  );
  running.serving = serving;
  const { rollout, metrics, feed, traffic } = serving;
  let prepared: Prepared | undefined;
  parent.handle({
    prepare: async (portable) => {
      prepared = await rollout.prepare(read(portable), new AbortController().signal);
    },
    commit: async () => {
      await prepared?.commit();
      prepared = undefined;
    },
    abandon: async () => {
      await prepared?.abandon();
      prepared = undefined;
    },
    catch_up: () => feed.catchUp(),
    is_ready: () => serving.isReady(),
    figures: () => metrics.figures(),
    backends: () => rollout.backends.map(statusOf),
    record_traffic: (recording) => traffic.record(recording),
    forget_traffic: () => traffic.forget(),
    recorded_traffic: (from) => traffic.page(from),
    cut: () => serving.cut(),
    stop: (times) => stop(times, 0),
  });
  return { port: await serving.listen() };
}
