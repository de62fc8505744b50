import { performance } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';

import { memoryLimitBytes, residentBytes } from '../../platform/memory.ts';

/**
 * The levels of load shedding (reliability §5, "shedding"): 0 accepts everything, 1 refuses large bodies, 2 refuses new work, 3 also closes
 * idle connections.
 */
export type ShedLevel = 0 | 1 | 2 | 3;

export interface LoadLimits {
  /** Event loop lag from which large bodies are refused. */
  readonly largeBodiesLagMs: number;
  /** Event loop lag from which new work is refused. */
  readonly newWorkLagMs: number;
  /** Memory usage, 0 to 1, from which new work is refused. */
  readonly newWorkMemoryShare: number;
  /** Memory usage, 0 to 1, from which idle connections are closed too. */
  readonly idleConnectionsMemoryShare: number;
}

/** One sample, covering the time since the previous one. */
export interface LoadSample {
  /** The greatest delay of the event loop's timers. */
  readonly lagMs: number;
  /** Share of the time in which the event loop was busy, 0 to 1. */
  readonly busyShare: number;
  /** Memory usage: resident memory or heap relative to its limit, whichever is fuller. */
  readonly memoryShare: number;
}

/** How often the load is judged. */
const judgeEveryMs = 250;

/** Samples considered together: the last second. */
const windowSamples = 4;
/** Number of samples that must agree before anything is refused. One pause, however long, is one sample. */
const agreeingSamples = 3;
/** To lower the level, the whole window has to stay below these shares of a threshold. */
const calmLagShare = 0.8;
const calmMemoryShare = 0.95;
/**
 * An event loop less busy than this is not late because of its own work: something else had the processor, and refusing work would not
 * change that. An overloaded loop is busy all the time, even on a shared machine.
 */
const busyShareMin = 0.7;

/** Judges samples in sequence. Pure apart from its history: the caller is the clock. */
export class Shedding {
  readonly #limits: LoadLimits;
  readonly #samples: LoadSample[] = [];
  #shedLevel: ShedLevel = 0;

  constructor(limits: LoadLimits) {
    this.#limits = limits;
  }

  get shedLevel(): ShedLevel {
    return this.#shedLevel;
  }

  judge(sample: LoadSample): ShedLevel {
    this.#samples.push(sample);
    if (this.#samples.length > windowSamples) this.#samples.shift();
    const asked = this.#samples.map((one) => this.#shedLevelOf(one, 1, 1)).sort((a, b) => b - a);
    const reached = asked[agreeingSamples - 1] ?? 0;
    const kept = Math.max(...this.#samples.map((one) => this.#shedLevelOf(one, calmLagShare, calmMemoryShare)));
    this.#shedLevel = Math.max(reached, Math.min(this.#shedLevel, kept)) as ShedLevel;
    return this.#shedLevel;
  }

  /** The level of a single sample, with the thresholds scaled by these factors. */
  #shedLevelOf({ lagMs, busyShare, memoryShare }: LoadSample, lagShare: number, ofMemory: number): ShedLevel {
    const limits = this.#limits;
    const lag = busyShare >= busyShareMin * lagShare ? lagMs : 0;
    if (memoryShare >= limits.idleConnectionsMemoryShare * ofMemory) return 3;
    if (memoryShare >= limits.newWorkMemoryShare * ofMemory || lag >= limits.newWorkLagMs * lagShare) return 2;
    return lag >= limits.largeBodiesLagMs * lagShare ? 1 : 0;
  }
}

/** Whether memory is what raises the level above the first. */
export const lacksMemory = ({ memoryShare }: LoadSample, { newWorkMemoryShare }: LoadLimits): boolean =>
  memoryShare >= newWorkMemoryShare * calmMemoryShare;

export interface LoadMonitorOptions {
  readonly limits: LoadLimits;
  /** The total memory to assume; undefined: that of the container or the machine. */
  readonly memoryBytesMax: number | undefined;
  /** Number of processes like this one that share the memory of the container or the machine. */
  readonly processes?: number;
  /** Called with every judgement. */
  readonly judged: (shedLevel: ShedLevel, sample: LoadSample) => void;
}

/** How often the event loop's lag is measured. */
const tickEveryMs = 20;

/**
 * Samples this process four times a second. Returns a function that stops it.
 *
 * A separate timer measures the lag. Node's `monitorEventLoopDelay` loses the delay in which its histogram is reset, so a loop blocked for
 * 300 ms each time shows no lag; and of a dozen ticks between two samples, the 99th percentile is the maximum.
 */
export function monitorLoad({ limits, memoryBytesMax, processes = 1, judged }: LoadMonitorOptions): () => void {
  const shedding = new Shedding(limits);
  const memoryMax = memoryBytesMax ?? memoryLimitBytes() / processes;
  let lagMs = 0;
  let tickAtMs = performance.now();
  let lookAtMs = tickAtMs;
  let looked = performance.eventLoopUtilization();
  const look = (): void => {
    const now = performance.eventLoopUtilization();
    const heap = getHeapStatistics();
    const sample = {
      lagMs,
      busyShare: performance.eventLoopUtilization(now, looked).utilization,
      memoryShare: Math.max(residentBytes() / memoryMax, heap.used_heap_size / heap.heap_size_limit),
    };
    looked = now;
    lagMs = 0;
    judged(shedding.judge(sample), sample);
  };
  const timer = setInterval(() => {
    const now = performance.now();
    lagMs = Math.max(lagMs, now - tickAtMs - tickEveryMs);
    tickAtMs = now;
    if (now - lookAtMs < judgeEveryMs) return;
    lookAtMs = now;
    look();
  }, tickEveryMs);
  timer.unref();
  return () => clearInterval(timer);
}
