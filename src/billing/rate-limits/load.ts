import { getHeapStatistics } from 'node:v8';

import type { LoopWatch } from '../../platform/loop-watch.ts';
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

/** Samples considered together: the last second, while anything runs. */
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
  readonly loop: LoopWatch;
  /** Whether anything runs that a delay would concern. */
  readonly isBusy: () => boolean;
  /** Called with every judgement. */
  readonly judged: (shedLevel: ShedLevel, sample: LoadSample) => void;
}

/** Judges this process by each look of `loop`, four a second while anything runs. Returns a function that ends it. */
export function monitorLoad({
  limits,
  memoryBytesMax,
  processes = 1,
  loop,
  isBusy,
  judged,
}: LoadMonitorOptions): () => void {
  const shedding = new Shedding(limits);
  const memoryMax = memoryBytesMax ?? memoryLimitBytes() / processes;
  return loop.onLook(({ lagMs, busyShare }) => {
    const heap = getHeapStatistics();
    const memoryShare = Math.max(residentBytes() / memoryMax, heap.used_heap_size / heap.heap_size_limit);
    const sample = { lagMs, busyShare, memoryShare };
    const shedLevel = shedding.judge(sample);
    judged(shedLevel, sample);
    // Until it is calm again, so that the cap rises as fast as it fell.
    return shedLevel > 0 || isBusy();
  });
}
