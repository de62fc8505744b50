import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';

import { entryUrl } from '../../entries.ts';
import { ApiError, atCap } from '../../errors.ts';
import type { JsonReply } from './json-thread.ts';
import type { StopSignal } from '../../stop-signal.ts';

export interface JsonThreadsOptions {
  /** Default: two; one where the main thread would have to share its CPU core with them. */
  readonly threadsMax?: number;
  /** Bodies that wait for a thread; more are refused. */
  readonly waitingMax?: number;
  /** Time limit of a body, including its wait for a thread. */
  readonly timeLimitMs?: number;
  /** An idle thread ends after this long and releases its memory. */
  readonly idleMs?: number;
}

interface Job {
  blocks: readonly Uint8Array<ArrayBuffer>[];
  readonly signal: StopSignal;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

interface Thread {
  readonly worker: Worker;
  job: Job | undefined;
  timer: NodeJS.Timeout | undefined;
}

/**
 * Parses bodies off the main thread (reliability §5, "workers"). The bytes are handed over, not copied; the value comes back as a
 * structured clone, whose strings are copied as they are. Of the ways back this one blocks the main thread least: for 48 MB in
 * one string it takes 45 ms as one of base64 (parsing it there again: 100 ms), 13 ms of `\"` (130 ms) and 44 ms of Chinese (415
 * ms); for half a million structural characters, 80 ms (13 ms) of empty objects, and at worst 390 ms (250 ms) of objects with a
 * name of their own each, which is why names have a limit, see names.ts. All on a machine with four times more work than cores.
 *
 * Threads start with the first large body and end when there are none. One that dies, or is too slow, takes only its body
 * with it.
 */
export class JsonThreads {
  readonly #threadsMax: number;
  readonly #waitingMax: number;
  readonly #timeLimitMs: number;
  readonly #idleMs: number;
  readonly #threads = new Set<Thread>();
  readonly #waiting = new Set<Job>();
  #isClosed = false;

  constructor(options: JsonThreadsOptions = {}) {
    this.#threadsMax = options.threadsMax ?? (availableParallelism() > 2 ? 2 : 1);
    this.#waitingMax = options.waitingMax ?? 32;
    this.#timeLimitMs = options.timeLimitMs ?? 10_000;
    this.#idleMs = options.idleMs ?? 10_000;
  }

  /** Threads that are alive. */
  get count(): number {
    return this.#threads.size;
  }

  /**
   * The value of a body in blocks, whose bytes are transferred. Rejects with `invalid_json_request`, with `backend_at_capacity`
   * when it takes too long or the threads are busy, or with the reason of the signal.
   */
  parse(blocks: readonly Uint8Array<ArrayBuffer>[], signal: StopSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const free = [...this.#threads].find((thread) => thread.job === undefined);
      const canRun = free !== undefined || this.#threads.size < this.#threadsMax;
      if (this.#isClosed || (!canRun && this.#waiting.size >= this.#waitingMax)) {
        reject(atCapacity(this.#waitingMax));
        return;
      }
      signal.throwIfAborted();
      const settled = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
        this.#waiting.delete(job);
        // The promise must not keep 50 MB alive.
        job.blocks = [];
      };
      const job: Job = {
        blocks,
        signal,
        resolve: (value) => {
          settled();
          resolve(value);
        },
        reject: (error) => {
          settled();
          reject(error as Error);
        },
      };
      // A body whose client leaves during parsing is parsed to its end, for no one: a new thread costs more.
      const onAbort = (): void => job.reject(signal.reason);
      signal.addEventListener('abort', onAbort, { once: true });
      const timer = setTimeout(() => job.reject(atCapacity(this.#waitingMax)), this.#timeLimitMs);
      if (!canRun) {
        this.#waiting.add(job);
        return;
      }
      this.#run(free ?? this.#start(), job);
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const job of this.#waiting) job.reject(atCapacity(this.#waitingMax));
    await Promise.all([...this.#threads].map((thread) => this.#end(thread)));
  }

  #start(): Thread {
    const thread: Thread = { worker: this.#newWorker(), job: undefined, timer: undefined };
    this.#threads.add(thread);
    thread.worker.on('message', (reply: JsonReply) => {
      const { job } = thread;
      thread.job = undefined;
      clearTimeout(thread.timer);
      if ('value' in reply) job?.resolve(reply.value);
      else job?.reject(new ApiError('invalid_json_request', reply.refusal));
      this.#next(thread);
    });
    // A fault of our own: the next body gets a new thread.
    const died = (): void => void this.#end(thread);
    thread.worker.on('error', died).on('exit', died).on('messageerror', died);
    return thread;
  }

  #newWorker(): Worker {
    return new Worker(entryUrl('json-thread'), {
      name: 'json',
      resourceLimits: { maxOldGenerationSizeMb: heapMegabytes },
    });
  }

  #run(thread: Thread, job: Job): void {
    thread.job = job;
    thread.worker.ref();
    clearTimeout(thread.timer);
    thread.timer = setTimeout(() => void this.#end(thread), this.#timeLimitMs);
    const { blocks } = job;
    job.blocks = [];
    thread.worker.postMessage(
      blocks,
      blocks.map((block) => block.buffer),
    );
  }

  /** Starts the longest waiting body, or idles. */
  #next(thread: Thread): void {
    const [job] = this.#waiting;
    if (job !== undefined) {
      this.#waiting.delete(job);
      this.#run(thread, job);
      return;
    }
    thread.worker.unref();
    thread.timer = setTimeout(() => void this.#end(thread), this.#idleMs).unref();
  }

  async #end(thread: Thread): Promise<void> {
    if (!this.#threads.delete(thread)) return;
    clearTimeout(thread.timer);
    thread.job?.reject(atCapacity(this.#waitingMax));
    thread.job = undefined;
    const [job] = this.#waiting;
    if (job !== undefined && !this.#isClosed) {
      this.#waiting.delete(job);
      this.#run(this.#start(), job);
    }
    await thread.worker.terminate();
  }
}

/**
 * Unreachable on purpose, because V8 ends the whole process when memory runs out inside JSON.parse: four times what the worst
 * body needs, whose text is there twice, at two bytes for a character, and of the largest size that a configuration may allow,
 * now or when it is read again (10⁹ bytes). None of it is reserved.
 */
const heapMegabytes = 256 + Math.ceil((16 * 1e9) / 2 ** 20);

const atCapacity = (waitingMax: number): ApiError =>
  new ApiError('backend_at_capacity', 'Large bodies cannot be read now. Try again shortly.', atCap(waitingMax, 1));
