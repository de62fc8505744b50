import { entryUrl } from '../../platform/entries.ts';
import { Thread } from '../../platform/rpc/thread.ts';
import { forwardedRepositories } from '../repositories/forwarded.ts';
import type { Repositories } from '../repositories/repositories.ts';
import { storeErrors } from '../store-error.ts';
import type { QueryCalls } from './query-worker.ts';

const waitingMax = 1000;
const callTimeoutMs = 30_000;
const closeTimeoutMs = 10_000;

export interface QueryWorkerOptions {
  readonly file: string;
  /** The thread has died, so keys can no longer be revoked: the process must end. Called once. */
  readonly onFatal: (error: Error) => void;
}

/** The main thread's side of the repositories. */
export class QueryWorker {
  /** One method for each operation. */
  readonly repositories: Repositories;
  readonly #thread: Thread<QueryCalls>;
  readonly #started: Promise<readonly string[]>;
  #state: 'starting' | 'open' | 'closed' = 'starting';

  constructor({ file, onFatal }: QueryWorkerOptions) {
    this.#thread = new Thread({
      program: entryUrl('query-worker'),
      name: 'queries',
      callsMax: waitingMax,
      errors: storeErrors,
      onDied: (error) => {
        if (this.#state === 'open') onFatal(error); // while it starts, `start` reports it
        this.#state = 'closed';
      },
    });
    this.#started = this.#thread.rpc.call('start', file);
    this.#started.then(
      () => {
        if (this.#state === 'starting') this.#state = 'open';
      },
      () => {}, // the caller of start sees it
    );
    this.repositories = forwardedRepositories((name, request) =>
      this.#thread.rpc.call(name, request, { timeoutMs: callTimeoutMs }),
    );
  }

  /** Brings the schema up to date; resolves with the names of the migrations that ran. */
  start(): Promise<readonly string[]> {
    return this.#started;
  }

  /** Resolves after all waiting calls, and after the start. */
  async close(): Promise<void> {
    this.#state = 'closed';
    const lastCall = async (): Promise<unknown> => {
      await this.#started.catch(() => {});
      return await this.#thread.rpc.call('close', null);
    };
    await this.#thread.close(lastCall, closeTimeoutMs);
  }
}
