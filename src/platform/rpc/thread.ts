import { parentPort, Worker, type ResourceLimits } from 'node:worker_threads';
import { withDeadline } from '../deadline.ts';
import { Rpc, type Functions, type RpcOptions } from './rpc.ts';
import { threadTransport } from './transport.ts';

export interface ThreadOptions extends Pick<RpcOptions<never>, 'callsMax' | 'errors'> {
  readonly program: URL;
  /** For diagnostics, and for the messages of errors: "the ledger's thread". */
  readonly name: string;
  readonly resourceLimits?: ResourceLimits;
  /** Called once if it ends by itself, and not after `close` or `terminate`. */
  readonly onDied: (error: Error) => void;
}

/** A thread of this process that answers calls. When it dies, pending calls are rejected before `onDied` is called. */
export class Thread<Remote extends Functions<Remote>> {
  readonly rpc: Rpc<Remote>;
  readonly #worker: Worker;
  readonly #onDied: (error: Error) => void;
  readonly #name: string;
  #state: 'alive' | 'closing' | 'over' = 'alive';

  constructor({ program, name, resourceLimits, onDied, callsMax, errors }: ThreadOptions) {
    this.#name = name;
    this.#onDied = onDied;
    this.#worker = new Worker(program, { name, ...(resourceLimits === undefined ? {} : { resourceLimits }) });
    this.rpc = new Rpc<Remote>(threadTransport(this.#worker), {
      ...(callsMax === undefined ? {} : { callsMax }),
      ...(errors === undefined ? {} : { errors }),
      onBroken: (reason) => this.#died(new Error(reason)),
    });
    this.#worker.on('error', (error) => this.#died(error instanceof Error ? error : new Error(String(error))));
    this.#worker.on('messageerror', (error) => this.#died(error));
    this.#worker.on('exit', (code) => this.#died(new Error(`the ${name} thread has ended (${code})`)));
  }

  /** Whether it keeps this process alive: it should while it works. */
  set isWorking(isWorking: boolean) {
    if (isWorking) this.#worker.ref();
    else this.#worker.unref();
  }

  /** Ends it after all its calls: the thread exits after it has answered this last one, or is terminated at the timeout. */
  async close(lastCall: () => Promise<unknown>, timeoutMs: number): Promise<void> {
    if (this.#state !== 'alive') return;
    this.#state = 'closing';
    const exited = new Promise((resolve) => this.#worker.once('exit', resolve));
    const done = lastCall().then(
      () => exited,
      () => {},
    );
    await withDeadline(done, timeoutMs, () => {});
    await this.terminate();
  }

  /**
   * Terminates it immediately. Use `close` for a thread that may be in a SQLite call: when its thread is terminated, the binding
   * throws an error that cannot be caught, which ends the whole process.
   */
  async terminate(): Promise<void> {
    this.#state = 'over';
    this.rpc.close(`the ${this.#name} thread is closed`);
    await this.#worker.terminate();
  }

  #died(error: Error): void {
    if (this.#state === 'over') return;
    const isExpected = this.#state === 'closing';
    this.#state = 'over';
    this.rpc.close(error.message, error);
    void this.#worker.terminate(); // a thread that sends nonsense has not ended yet
    if (!isExpected) this.#onDied(error);
  }
}

/** The answer to the parent's last call; the thread ends once the answer is on its way. */
export function endThread(): null {
  setImmediate(() => parentPort!.close());
  return null;
}

/** The thread's own side: answers its parent's calls. */
export function serveParent<Local extends Functions<Local>>(
  options: Pick<RpcOptions<Local>, 'handlers' | 'isAnswer'>,
): Rpc<Record<never, never>, Local> {
  return new Rpc<Record<never, never>, Local>(threadTransport(parentPort!), {
    ...options,
    onBroken: (reason) => {
      throw new Error(reason);
    },
  });
}
