import { LoopWatch } from '../platform/loop-watch.ts';
import { readProcess } from '../platform/metrics/process-readings.ts';
import type { ProcessReadings } from '../platform/metrics/process-readings.ts';

/** Watches the event loop, for the shedding of load and for the metrics. `opened` receives what stops it. */
export function watchProcess(opened: (() => unknown)[]): {
  readonly loop: LoopWatch;
  readonly processReadings: ProcessReadings;
} {
  const loop = new LoopWatch();
  opened.push(() => loop.stop());
  const processReadings = readProcess(loop);
  opened.push(() => processReadings.stop());
  return { loop, processReadings };
}
