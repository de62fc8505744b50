import { Worker } from 'node:worker_threads';
import { entryUrl } from '../../platform/entries.ts';
import type { Repositories, RepositoryOperation } from '../repositories/repositories.ts';
import { fromFailure, StoreError } from '../store-error.ts';
import type { QueryCall, QueryReply, QueryWorkerStarted } from './query-worker.ts';

const waitingMax = 1000;
const callTimeoutMs = 30_000;
const closeTimeoutMs = 10_000;

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: StoreError) => void;
  readonly timer: NodeJS.Timeout;
}

export interface QueryWorkerOptions {
  readonly file: string;
  /** The thread has died, so keys can no longer be revoked: the process must end. Called once. */
  readonly onFatal: (error: Error) => void;
}

/** The main thread's side of the repositories. */
export class QueryWorker {
  /** One method for each operation. */
  readonly repositories: Repositories;
  readonly #worker: Worker;
  readonly #onFatal: (error: Error) => void;
  readonly #waiting = new Map<number, Waiting>();
  readonly #started: Promise<readonly string[]>;
  #last = 0;
  #state: 'starting' | 'open' | 'closed' = 'starting';

  constructor(options: QueryWorkerOptions) {
    this.#onFatal = options.onFatal;
    this.#worker = new Worker(entryUrl('query-worker'), { name: 'queries', workerData: { file: options.file } });
    this.#started = new Promise((resolve, reject) => {
      this.#worker.once('message', (started: QueryWorkerStarted) => {
        this.#worker.on('message', (reply: QueryReply) => this.#receive(reply));
        if ('failure' in started) {
          reject(fromFailure(started.failure));
          return;
        }
        this.#state = 'open';
        resolve(started.migrated);
      });
      this.#worker.on('error', reject);
      this.#worker.on('exit', () => reject(new StoreError('failed', 'the query worker ended while it started')));
    });
    this.#started.catch(() => {}); // the caller of start sees it
    this.#worker.on('error', (error) => this.#die(error instanceof Error ? error : new Error(String(error))));
    this.#worker.on('messageerror', (error) => this.#die(error));
    this.#worker.on('exit', (code) => this.#die(new Error(`the query worker has ended (${code})`)));
    this.repositories = this.repositoriesOf(undefined);
  }

  /** The repositories for a process that works on the books through this one. */
  repositoriesOf(replica: Uint8Array | undefined): Repositories {
    return new Proxy({} as Repositories, {
      // `then` would make it look like a promise to `await`.
      get: (_target, name) =>
        name === 'then' ? undefined : (request: unknown) => this.#call(name as RepositoryOperation, request, replica),
    });
  }

  /** Brings the schema up to date; resolves with the names of the migrations that ran. */
  start(): Promise<readonly string[]> {
    return this.#started;
  }

  /** Ends after everything that is waiting. */
  async close(): Promise<void> {
    if (this.#state === 'open') {
      this.#state = 'closed';
      const exited = new Promise<void>((resolve) => this.#worker.once('exit', () => resolve()));
      this.#worker.postMessage('close');
      let timer: NodeJS.Timeout | undefined;
      const timeout = new Promise<void>((resolve) => (timer = setTimeout(resolve, closeTimeoutMs)));
      await Promise.race([exited, timeout]);
      clearTimeout(timer);
    }
    await this.#worker.terminate();
    this.#rejectAll(new StoreError('failed', 'the store is closed'));
  }

  #call(name: RepositoryOperation, request: unknown, replica: Uint8Array | undefined): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#state !== 'open') {
        reject(new StoreError('failed', 'the store is closed'));
        return;
      }
      if (this.#waiting.size >= waitingMax) {
        reject(new StoreError('busy', 'too many reports are waiting'));
        return;
      }
      const id = ++this.#last;
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new StoreError('failed', `${name} did not end within ${callTimeoutMs} ms`));
      }, callTimeoutMs);
      this.#waiting.set(id, { resolve, reject, timer });
      const call: QueryCall = { id, name, request, ...(replica === undefined ? {} : { replica }) };
      this.#worker.postMessage(call);
    });
  }

  #receive(reply: QueryReply): void {
    const waiting = this.#waiting.get(reply.id);
    if (waiting === undefined) return; // timed out
    this.#waiting.delete(reply.id);
    clearTimeout(waiting.timer);
    if ('failure' in reply) waiting.reject(fromFailure(reply.failure));
    else waiting.resolve(reply.value);
  }

  #die(error: Error): void {
    if (this.#state !== 'open') return; // while it starts, `start` reports it
    this.#state = 'closed';
    this.#rejectAll(new StoreError('failed', error.message, error));
    this.#onFatal(error);
  }

  #rejectAll(error: StoreError): void {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { timer, reject } of waiting) {
      clearTimeout(timer);
      reject(error);
    }
  }
}
