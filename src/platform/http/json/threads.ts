import { availableParallelism } from 'node:os';

import { combineSignals } from '../../combine-signals.ts';
import { entryUrl } from '../../entries.ts';
import { ApiError, atCap } from '../../errors.ts';
import { ThreadPool } from '../../rpc/thread-pool.ts';
import { abortSignalOf, type StopSignal } from '../../stop-signal.ts';
import type { JsonCalls, ParsedJson } from './json-thread.ts';

export interface JsonThreadsOptions {
  /** Default: two; one where the main thread would have to share its CPU core with them. */
  readonly threadsMax?: number;
  /** Bodies that wait for a thread; more are refused. */
  readonly waitingMax?: number;
  /**
   * Time limit of a body, including its wait for a thread. Threads yield to everything else: beside other programs on two slow cores 50 MB
   * took more than 10 s.
   */
  readonly timeLimitMs?: number;
  /** An idle thread ends after this long and releases its memory. */
  readonly idleMs?: number;
}

/**
 * Parses bodies off the main thread (reliability §5, "workers"). The bytes are handed over, not copied; the value comes back as a
 * structured clone, whose strings are copied as they are. No other way back blocks the main thread less: for 48 MB in one string it
 * takes 45 ms as one of base64 (parsing it there again: 100 ms), 13 ms of `\"` (130 ms) and 44 ms of Chinese (415 ms); for half a
 * million structural characters, 80 ms (13 ms) of empty objects, and at worst 390 ms (250 ms) of objects that each have a different
 * name, which is why names are limited, see names.ts. All on a machine with four times more work than cores.
 *
 * Threads start with the first large body and end when there are none. One that dies, or is too slow, takes only its body with it.
 */
export class JsonThreads {
  readonly #pool: ThreadPool<JsonCalls>;
  readonly #timeLimitMs: number;
  readonly #waitingMax: number;

  constructor({ threadsMax, waitingMax = 32, timeLimitMs = 30_000, idleMs = 10_000 }: JsonThreadsOptions = {}) {
    this.#timeLimitMs = timeLimitMs;
    this.#waitingMax = waitingMax;
    this.#pool = new ThreadPool({
      program: entryUrl('json-thread'),
      name: 'json',
      resourceLimits: { maxOldGenerationSizeMb: heapMegabytes },
      threadsMax: threadsMax ?? (availableParallelism() > 2 ? 2 : 1),
      waitingMax,
      timeLimitMs,
      idleMs,
      refusal: () => atCapacity(waitingMax),
    });
  }

  /** Threads that are alive. */
  get count(): number {
    return this.#pool.count;
  }

  /**
   * The value of a body in blocks, whose bytes are transferred. Rejects with `invalid_json_request`, with `backend_at_capacity`
   * when it takes too long or the threads are busy, or with the reason of the signal.
   */
  async parse(blocks: readonly Uint8Array<ArrayBuffer>[], signal: StopSignal): Promise<ParsedJson> {
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(atCapacity(this.#waitingMax)), this.#timeLimitMs);
    try {
      return await this.#pool.call('parse', blocks, {
        transfer: blocks.map((block) => block.buffer),
        signal: combineSignals([abortSignalOf(signal), late.signal]),
      });
    } finally {
      clearTimeout(timer);
    }
  }

  close(): Promise<void> {
    return this.#pool.close();
  }
}

/**
 * Deliberately unreachable, because V8 ends the whole process when memory runs out inside JSON.parse: four times what the worst
 * body needs, with two copies of its text at two bytes per character, at the largest size that a configuration may allow, now or
 * after a reload (10⁹ bytes). None of it is reserved.
 */
const heapMegabytes = 256 + Math.ceil((16 * 1e9) / 2 ** 20);

const atCapacity = (waitingMax: number): ApiError =>
  new ApiError(
    'backend_at_capacity',
    'Large bodies cannot be read at the moment. Try again shortly.',
    atCap(waitingMax, 1),
  );
