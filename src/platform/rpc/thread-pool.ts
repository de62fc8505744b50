import type { ResourceLimits } from 'node:worker_threads';
import { combineSignals } from '../combine-signals.ts';
import { orAborted } from '../deadline.ts';
import { Semaphore } from '../semaphore.ts';
import { RpcError } from './failure.ts';
import type { AnswerOf, Functions, RequestOf } from './rpc.ts';
import { Thread } from './thread.ts';

export interface ThreadPoolOptions {
  readonly program: URL;
  readonly name: string;
  readonly resourceLimits: ResourceLimits;
  readonly threadsMax: number;
  /** Calls that wait for a thread; more are refused. */
  readonly waitingMax: number;
  /** A thread that takes longer for a call ends with it. */
  readonly timeLimitMs: number;
  /** An idle thread ends after this long and releases its memory. Infinity: it stays. */
  readonly idleMs: number;
  /** The error of a call that is not carried out. A thread dies only because of a bug. */
  readonly refusal: (why: 'full' | 'slow' | 'died' | 'closed') => Error;
}

interface PoolCallOptions {
  readonly transfer?: readonly ArrayBuffer[];
  /**
   * An abort ends the wait with its reason. A call that has begun still runs, and its result is discarded: a new thread would cost
   * more.
   */
  readonly signal?: AbortSignal;
}

/**
 * Threads for work that would block this one, each with one call at a time. They start with the first call that needs them, and
 * keep the process alive only while they work. One that dies, or is too slow, takes only its call with it.
 */
export class ThreadPool<Remote extends Functions<Remote>> {
  readonly #options: ThreadPoolOptions;
  readonly #semaphore: Semaphore;
  readonly #threads = new Set<Thread<Remote>>();
  /** Idle threads, with the timers that end them. */
  readonly #idle = new Map<Thread<Remote>, NodeJS.Timeout | undefined>();
  readonly #closing = new AbortController();

  constructor(options: ThreadPoolOptions) {
    this.#options = options;
    const { threadsMax, waitingMax, refusal } = options;
    this.#semaphore = new Semaphore(threadsMax, { waitingMax, refusal: () => refusal('full') });
  }

  /** Threads that are alive. */
  get count(): number {
    return this.#threads.size;
  }

  /** Memory is transferred immediately if a thread is free, otherwise when the call's turn comes. */
  call<Name extends keyof Remote & string>(
    name: Name,
    request: RequestOf<Remote[Name]>,
    options: PoolCallOptions = {},
  ): Promise<AnswerOf<Remote[Name]>> {
    const { signal } = options;
    if (this.#closing.signal.aborted || signal?.aborted === true)
      return Promise.reject((this.#closing.signal.aborted ? this.#closing.signal : signal!).reason as Error);
    const run = (release: () => void): Promise<AnswerOf<Remote[Name]>> => {
      const work = this.#run(name, request, options.transfer);
      work.then(release, release);
      return signal === undefined ? work : orAborted(work, signal);
    };
    const release = this.#semaphore.tryAcquire();
    if (release !== undefined) return run(release);
    const ended = signal === undefined ? this.#closing.signal : combineSignals([this.#closing.signal, signal]);
    return this.#semaphore.acquire(ended).then(run);
  }

  /** Refuses waiting and running calls, and ends the threads. */
  async close(): Promise<void> {
    this.#closing.abort(this.#options.refusal('closed'));
    await Promise.all([...this.#threads].map((thread) => this.#end(thread)));
  }

  async #run<Name extends keyof Remote & string>(
    name: Name,
    request: RequestOf<Remote[Name]>,
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<AnswerOf<Remote[Name]>> {
    const thread = this.#take();
    try {
      return await thread.rpc.call(name, request, { transfer, timeoutMs: this.#options.timeLimitMs });
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      void this.#end(thread);
      if (this.#closing.signal.aborted) throw this.#closing.signal.reason;
      throw this.#options.refusal(error.code === 'timeout' ? 'slow' : 'died');
    } finally {
      if (this.#threads.has(thread)) this.#rest(thread);
    }
  }

  #take(): Thread<Remote> {
    const [idle] = this.#idle;
    if (idle !== undefined) {
      const [thread, timer] = idle;
      clearTimeout(timer);
      this.#idle.delete(thread);
      thread.isWorking = true;
      return thread;
    }
    const { program, name, resourceLimits } = this.#options;
    const thread: Thread<Remote> = new Thread({
      program,
      name,
      resourceLimits,
      onDied: () => void this.#end(thread),
    });
    this.#threads.add(thread);
    return thread;
  }

  #rest(thread: Thread<Remote>): void {
    thread.isWorking = false;
    const { idleMs } = this.#options;
    const timer = idleMs === Infinity ? undefined : setTimeout(() => void this.#end(thread), idleMs).unref();
    this.#idle.set(thread, timer);
  }

  async #end(thread: Thread<Remote>): Promise<void> {
    if (!this.#threads.delete(thread)) return;
    clearTimeout(this.#idle.get(thread));
    this.#idle.delete(thread);
    await thread.terminate();
  }
}
