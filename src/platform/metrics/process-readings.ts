import { readdir } from 'node:fs';
import { performance } from 'node:perf_hooks';

import type { LoopWatch } from '../loop-watch.ts';

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

export function readProcess({ delays }: LoopWatch): ProcessReadings {
  let delay = { p50: 0, p99: 0, max: 0 };
  let before = performance.eventLoopUtilization();
  let utilization = 0;
  let openFiles: number | undefined;

  const turn = (): void => {
    const seconds = (nanoseconds: number): number => nanoseconds / 1e9;
    if (delays.count > 0)
      delay = { p50: seconds(delays.percentile(50)), p99: seconds(delays.percentile(99)), max: seconds(delays.max) };
    delays.reset();
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
    stop: () => clearInterval(timer),
  };
}
