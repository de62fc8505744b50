import { withDeadline } from '../deadline.ts';
import type { Log } from '../log.ts';

/** Recurring work beside the requests. */
export interface Job {
  /** In `snake_case`: the label of its metrics, and its failures are logged as `<name>_failed`. */
  readonly name: string;
  /** From the end of one run to the beginning of the next. */
  readonly everyMs: number;
  /**
   * - `alone`: one run at a time among all processes on the same ledger (`Store.alone`), and one at a time here. For short work on
   *   the database, never for work that waits for the network.
   * - `anywhere`: every process runs it separately; its queries ensure that nothing is done twice.
   */
  readonly runs: 'alone' | 'anywhere';
  /**
   * One bounded batch; rejects when it failed, and is tried again after the pause. `true`: there is more to do right away. `signal`
   * aborts when the service stops: a run then ends as soon as its current step is complete.
   */
  run(signal: AbortSignal): Promise<boolean | void>;
}

export interface JobReading {
  readonly name: string;
  /** Seconds since 1970 by the clock of this machine; 0: no success since the start. */
  readonly lastSuccessSeconds: number;
  readonly failures: number;
}

export interface JobServices {
  readonly alone: <Value>(work: () => Promise<Value>) => Promise<Value>;
  readonly log: Log;
  /** The name of the failure in the log: a code, never a message. */
  readonly codeOf: (error: unknown) => string;
}

interface Kept {
  readonly job: Job;
  timer: NodeJS.Timeout | undefined;
  /** The run under way. */
  running: Promise<boolean> | undefined;
  lastSuccessSeconds: number;
  failures: number;
}

/** A job that always finds more to do yields to the others after this many batches. */
const batchesMax = 100;
const closingMaxMs = 10_000;

/** Runs jobs from `start` until `close`, each at its own pace. A failing job does not affect the others. */
export class Jobs {
  readonly #services: JobServices;
  readonly #jobs = new Map<string, Kept>();
  readonly #end = new AbortController();
  /** The last of the `alone` runs here: they share one connection that holds the lock. */
  #line: Promise<unknown> = Promise.resolve();
  #isStarted = false;

  constructor(services: JobServices) {
    this.#services = services;
  }

  /** Also allowed after the start. */
  add(job: Job): void {
    if (this.#jobs.has(job.name)) throw new Error(`there are two jobs called ${job.name}`);
    const kept: Kept = { job, timer: undefined, running: undefined, lastSuccessSeconds: 0, failures: 0 };
    this.#jobs.set(job.name, kept);
    if (this.#isStarted) this.#schedule(kept);
  }

  /** Each job first runs after its first pause, so that accumulated work does not slow down a start. */
  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    for (const kept of this.#jobs.values()) this.#schedule(kept);
  }

  /** Runs a job now, or waits for the run that is under way. Returns false if it failed, which is logged. */
  async run(name: string): Promise<boolean> {
    const kept = this.#jobs.get(name);
    if (kept === undefined) throw new Error(`there is no job ${name}`);
    clearTimeout(kept.timer);
    kept.running ??= this.#run(kept).finally(() => {
      kept.running = undefined;
      if (this.#isStarted) this.#schedule(kept);
    });
    return await kept.running;
  }

  get readings(): readonly JobReading[] {
    return [...this.#jobs.values()].map(({ job, lastSuccessSeconds, failures }) => ({
      name: job.name,
      lastSuccessSeconds,
      failures,
    }));
  }

  /** Starts no more runs, and waits for those under way for a bounded time: a database outage must not delay the shutdown. */
  async close(): Promise<void> {
    this.#end.abort();
    for (const kept of this.#jobs.values()) clearTimeout(kept.timer);
    const running = [...this.#jobs.values()].flatMap(({ running: run }) => (run === undefined ? [] : [run]));
    await withDeadline(Promise.allSettled(running), closingMaxMs, () => {});
  }

  #schedule(kept: Kept): void {
    clearTimeout(kept.timer);
    if (this.#end.signal.aborted) return;
    kept.timer = setTimeout(() => void this.run(kept.job.name), kept.job.everyMs).unref();
  }

  async #run(kept: Kept): Promise<boolean> {
    const { job } = kept;
    const { signal } = this.#end;
    try {
      for (let batch = 0; batch < batchesMax && !signal.aborted; batch++) {
        const hasMore = await (job.runs === 'alone' ? this.#alone(() => job.run(signal)) : job.run(signal));
        if (hasMore !== true) break;
      }
      if (!signal.aborted) kept.lastSuccessSeconds = Date.now() / 1_000;
      return true;
    } catch (error) {
      kept.failures++;
      const { log, codeOf } = this.#services;
      log.service({ level: 'warn', event: `${job.name}_failed`, detail: { code: codeOf(error) } });
      return false;
    }
  }

  #alone(work: () => Promise<boolean | void>): Promise<boolean | void> {
    const { signal } = this.#end;
    const run = this.#line.then(() => (signal.aborted ? undefined : this.#services.alone(work)));
    this.#line = run.catch(() => {});
    return run;
  }
}
