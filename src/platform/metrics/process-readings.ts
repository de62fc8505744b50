import { readdir } from 'node:fs';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';

/** The condition of this process, measured over fixed windows, so that several scrapers see the same. */
export interface ProcessReadings {
  /** Seconds of event loop delay, over the last complete window. */
  readonly delay: { readonly p50: number; readonly p99: number; readonly max: number };
  /** Share of the last window in which the event loop worked, 0 to 1. */
  readonly utilization: number;
  /** Undefined if the system does not report it. */
  readonly openFiles: number | undefined;
  stop(): void;
}

const windowMs = 15_000;
/** Interval of the delay samples; each is a timer, which takes less than a thousandth of a core. */
const sampleEveryMs = 20;

export function readProcess(): ProcessReadings {
  const histogram = monitorEventLoopDelay({ resolution: sampleEveryMs });
  histogram.enable();
  let delay = { p50: 0, p99: 0, max: 0 };
  let before = performance.eventLoopUtilization();
  let utilization = 0;
  let openFiles: number | undefined;

  const turn = (): void => {
    // A sample is the whole time between two timers; the excess over the interval is the delay.
    const late = (nanoseconds: number): number =>
      Number.isFinite(nanoseconds) ? Math.max(0, nanoseconds / 1e9 - sampleEveryMs / 1_000) : 0;
    if (histogram.max > 0)
      delay = { p50: late(histogram.percentile(50)), p99: late(histogram.percentile(99)), max: late(histogram.max) };
    histogram.reset();
    const now = performance.eventLoopUtilization();
    utilization = performance.eventLoopUtilization(now, before).utilization;
    before = now;
    readdir('/proc/self/fd', (error, names) => {
      openFiles = error === null ? names.length : undefined;
    });
  };
  turn();
  const timer = setInterval(turn, windowMs).unref();
  return {
    get delay() {
      return delay;
    },
    get utilization() {
      return utilization;
    },
    get openFiles() {
      return openFiles;
    },
    stop: () => {
      clearInterval(timer);
      histogram.disable();
    },
  };
}
