import { createHistogram, performance, type RecordableHistogram } from 'node:perf_hooks';

/** What the event loop did since the previous look. */
export interface LoopSample {
  /** The greatest delay of a timer. */
  readonly lagMs: number;
  /** Share of the time in which the loop was busy, 0 to 1. */
  readonly busyShare: number;
}

/** How often the delay of the loop is measured, and how often it is looked at, while anything runs. */
const tickEveryMs = 20;
const lookEveryMs = 250;
/** Both, while nothing runs: fifty wakes a second of an idle process would be all that it does. */
const restEveryMs = 1_000;
/** A loop that is busier than this is not at rest, whatever keeps it busy. Recurring jobs stay below it, on a busy machine too. */
const restShareMax = 0.2;
/** Looks that must find it at rest. */
const looksBeforeRest = 8;

/**
 * Measures how late the event loop runs its timers. It is the only timer that does: while anything runs it ticks fifty times a second,
 * otherwise once, until `wake` or a busy loop. Node's `monitorEventLoopDelay` has a timer of its own that never rests, and loses the delay in
 * which its histogram is reset: a loop blocked for 300 ms each time shows no delay. Does not keep the process alive; call `stop`.
 */
export class LoopWatch {
  /** Delays in nanoseconds, at least 1; the reader resets it. */
  readonly delays: RecordableHistogram = createHistogram();
  #looked: (sample: LoopSample) => boolean = () => false;
  #timer: NodeJS.Timeout | undefined;
  #state: 'awake' | 'resting' | 'stopped' = 'awake';
  #restful = 0;
  #lagMs = 0;
  #tickAtMs = performance.now();
  #lookAtMs = this.#tickAtMs;
  #utilization = performance.eventLoopUtilization();

  constructor() {
    this.#become('awake');
  }

  /** Whether nothing runs, so that it ticks once a second. */
  get rests(): boolean {
    return this.#state === 'resting';
  }

  /** `looked` gets each sample, four a second while anything runs, and returns whether the next ones are to come as often. One at a time. */
  onLook(looked: (sample: LoopSample) => boolean): () => void {
    this.#looked = looked;
    return () => (this.#looked = () => false);
  }

  /** Work begins. Costs nothing while it is awake. */
  wake(): void {
    this.#restful = 0;
    if (this.#state === 'resting') this.#become('awake');
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#state = 'stopped';
  }

  #become(state: 'awake' | 'resting'): void {
    clearInterval(this.#timer);
    this.#state = state;
    this.#tickAtMs = performance.now();
    const everyMs = state === 'awake' ? tickEveryMs : restEveryMs;
    this.#timer = setInterval(() => this.#tick(everyMs), everyMs).unref();
  }

  #tick(everyMs: number): void {
    const now = performance.now();
    const lateMs = Math.max(0, now - this.#tickAtMs - everyMs);
    this.#tickAtMs = now;
    this.#lagMs = Math.max(this.#lagMs, lateMs);
    this.delays.record(Math.max(1, Math.round(lateMs * 1e6)));
    if (now - this.#lookAtMs < lookEveryMs) return;
    this.#lookAtMs = now;
    this.#look();
  }

  #look(): void {
    const now = performance.eventLoopUtilization();
    const sample = {
      lagMs: this.#lagMs,
      busyShare: performance.eventLoopUtilization(now, this.#utilization).utilization,
    };
    this.#utilization = now;
    this.#lagMs = 0;
    const isAsked = this.#looked(sample);
    if (isAsked || sample.busyShare > restShareMax) return this.wake();
    this.#restful++;
    if (this.#state === 'awake' && this.#restful >= looksBeforeRest) this.#become('resting');
  }
}
