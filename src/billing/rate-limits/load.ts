import { performance } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';

import { memoryLimitBytes, residentBytes } from '../../platform/memory.ts';

/**
 * The levels of load shedding (reliability §5, "shedding"): 0 everything passes, 1 large bodies are refused, 2 new work is
 * refused, 3 idle connections are closed as well.
 */
export type ShedLevel = 0 | 1 | 2 | 3;

export interface LoadLimits {
  /** Lag of the event loop from which on large bodies are refused. */
  readonly largeBodiesLagMs: number;
  /** Lag of the event loop from which on new work is refused. */
  readonly newWorkLagMs: number;
  /** Share of the memory, 0 to 1, from which on new work is refused. */
  readonly newWorkMemoryShare: number;
  /** Share of the memory, 0 to 1, from which on idle connections are closed too. */
  readonly idleConnectionsMemoryShare: number;
}

/** The findings of one look, about the time since the look before. */
export interface LoadSample {
  /** The greatest delay of the event loop's timers. */
  readonly lagMs: number;
  /** Share of the time in which the event loop had work, 0 to 1. */
  readonly busyShare: number;
  /** How full the memory is: resident memory of its limit or heap of its limit, whichever is fuller. */
  readonly memoryShare: number;
}

/** How often the load is judged. */
const judgeEveryMs = 250;

/** Samples that are looked at together: the last second. */
const windowSamples = 4;
/** This many of them must agree before anything is refused. One pause, however long, is one sample. */
const agreeingSamples = 3;
/** To come down, the whole window has to stay below these shares of a threshold. */
const calmLagShare = 0.8;
const calmMemoryShare = 0.95;
/**
 * A loop that is less busy than this is not late because of its work: something else had the processor, and refusing work
 * would not change that. A loop that has more than it can do is busy all the time, also on a machine that is shared.
 */
const busyShareMin = 0.7;

/** Judges samples, one after the other. Pure apart from what it remembers: the caller is the clock. */
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

  /** The level of a single sample, by thresholds times these shares. */
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
  /** The size that counts as all the memory; `undefined`: that of the container or the machine. */
  readonly memoryBytesMax: number | undefined;
  /** Processes like this one that share the memory of the container or the machine. */
  readonly processes?: number;
  /** Called with every judgement. */
  readonly judged: (shedLevel: ShedLevel, sample: LoadSample) => void;
}

/** How often the lag of the event loop is measured. */
const tickEveryMs = 20;

/**
 * Looks at this process four times a second. Returns what ends it.
 *
 * A timer of our own measures the lag. Node's `monitorEventLoopDelay` forgets the delay in which its histogram is reset, so a
 * loop that is held up for 300 ms each time has a lag of nothing; and of a dozen ticks between two looks, the 99th percentile is
 * the worst.
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
