import { errorOf, failureOf, plainErrors, RpcError, type ErrorMapping, type Failure } from './failure.ts';
import type { StopSignal } from '../stop-signal.ts';
import type { Sent, Transport } from './transport.ts';

/** What one side answers: functions of one argument, by name. */
export type Functions<Self> = { readonly [Name in keyof Self]: (request: never) => unknown };

export type RequestOf<Function> = Function extends (request: infer Request) => unknown ? Request : never;
export type AnswerOf<Function> = Function extends (request: never) => infer Answer ? Awaited<Answer> : never;

/** A handler that checks its input takes `unknown`. */
export type Handlers<Self> = {
  readonly [Name in keyof Self]: (
    request: RequestOf<Self[Name]>,
  ) => AnswerOf<Self[Name]> | Transferred<AnswerOf<Self[Name]>> | Promise<AnswerOf<Self[Name]>>;
};

/** An answer whose memory is transferred instead of copied. */
export class Transferred<Value> {
  readonly value: Value;
  readonly buffers: readonly ArrayBuffer[];

  constructor(value: Value, buffers: readonly ArrayBuffer[]) {
    this.value = value;
    this.buffers = buffers;
  }
}

export interface CallOptions {
  /** Without one, a call waits until it is answered or the other side is gone. */
  readonly timeoutMs?: number;
  /** An abort ends the wait with the signal's reason; the other side continues. */
  readonly signal?: StopSignal;
  readonly transfer?: readonly ArrayBuffer[];
}

export interface RpcOptions<Local> {
  readonly handlers?: Partial<Handlers<Local>>;
  /** Calls that may wait for their answer; further ones are refused. */
  readonly callsMax?: number;
  readonly errors?: ErrorMapping;
  /** Whether an error of a handler is its answer. Any other error is a bug on this side and is thrown, which ends it. */
  readonly isAnswer?: (error: unknown, name: string) => boolean;
  /** The other side broke the rules of the connection, so nothing from it can be trusted. Called once; the connection is closed. */
  readonly onBroken: (reason: string) => void;
}

type Message =
  | readonly [kind: 'call', seq: number, name: string, request: unknown]
  | readonly [kind: 'answer', seq: number, value: unknown]
  | readonly [kind: 'failure', seq: number, failure: Failure]
  | readonly [kind: 'note', name: string, value: unknown];

interface Waiting {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
  /** Removes the timer and the abort listener of the wait. */
  readonly settled: (() => void) | undefined;
}

type Handler = (request: unknown) => unknown;

const callsMaxDefault = 200_000;

/**
 * Calls and notes over a connection, in both directions. `Remote` are the functions of the other side, `Local` those of this one.
 * Each call has exactly one outcome: the answer, the error of the handler, or an `RpcError` of `errors.ofConnection`. Calls are
 * handled in the order in which they arrive, and an asynchronous handler does not hold back the next one.
 */
export class Rpc<Remote extends Functions<Remote>, Local extends Functions<Local> = Record<never, never>> {
  readonly #transport: Transport;
  readonly #errors: ErrorMapping;
  readonly #callsMax: number;
  readonly #isAnswer: (error: unknown, name: string) => boolean;
  readonly #onBroken: (reason: string) => void;
  readonly #handlers = new Map<string, Handler>();
  readonly #waiting = new Map<number, Waiting>();
  #seq = 0;
  #heardMs = performance.now();
  #state: { readonly kind: 'open' } | { readonly kind: 'closed'; readonly error: RpcError } = { kind: 'open' };

  constructor(transport: Transport, options: RpcOptions<Local>) {
    this.#transport = transport;
    this.#errors = options.errors ?? plainErrors;
    this.#callsMax = options.callsMax ?? callsMaxDefault;
    this.#isAnswer = options.isAnswer ?? (() => true);
    this.#onBroken = options.onBroken;
    this.handle(options.handlers ?? {});
    transport.listen({
      message: (message) => this.#receive(message as Message),
      unsendable: (message, error) => this.#unsendable(message as Message, error),
      failed: (reason, isBroken) => (isBroken ? this.#broken(reason) : this.close(reason)),
    });
  }

  /** Calls the other side. Never throws: every failure is a rejection. */
  call<Name extends keyof Remote & string>(
    name: Name,
    request: RequestOf<Remote[Name]>,
    options?: CallOptions,
  ): Promise<AnswerOf<Remote[Name]>> {
    return new Promise((resolve, reject) => {
      const refusal = this.#refusal(options?.signal);
      if (refusal !== undefined) {
        reject(refusal);
        return;
      }
      const seq = ++this.#seq;
      const settled = options === undefined ? undefined : this.#bound(seq, name, options);
      this.#waiting.set(seq, { resolve: resolve as (value: never) => void, reject, settled });
      this.#send(['call', seq, name, request], options?.transfer);
    });
  }

  /** Notifies the other side, without an answer. A function that it does not have is ignored. */
  note<Name extends keyof Remote & string>(name: Name, value: RequestOf<Remote[Name]>): void {
    this.#send(['note', name, value]);
  }

  /** Registers handlers. */
  handle(handlers: Partial<Handlers<Local>>): void {
    for (const [name, handler] of Object.entries(handlers)) this.#handlers.set(name, handler as Handler);
  }

  /** Calls that have no answer yet. */
  get pending(): number {
    return this.#waiting.size;
  }

  /** When the other side last sent anything, by `performance.now()`. */
  get heardMs(): number {
    return this.#heardMs;
  }

  get sent(): Sent {
    return this.#transport.sent;
  }

  flush(): Promise<void> {
    return this.#transport.flush();
  }

  /** Closes the connection, because the other side is gone or no longer needed: pending and later calls are rejected. */
  close(reason = 'the other side is gone', cause?: unknown): void {
    if (this.#state.kind === 'closed') return;
    const error = new RpcError('closed', reason, cause);
    this.#state = { kind: 'closed', error };
    this.#transport.close();
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { settled, reject } of waiting) {
      settled?.();
      reject(this.#errors.ofConnection(error));
    }
  }

  #refusal(signal: StopSignal | undefined): Error | undefined {
    if (this.#state.kind === 'closed') return this.#errors.ofConnection(this.#state.error);
    if (signal?.aborted === true) return signal.reason as Error;
    if (this.#waiting.size < this.#callsMax) return undefined;
    return this.#errors.ofConnection(new RpcError('busy', 'too many calls wait for an answer'));
  }

  #bound(seq: number, name: string, { timeoutMs, signal }: CallOptions): (() => void) | undefined {
    if (timeoutMs === undefined && signal === undefined) return undefined;
    const giveUp = (error: () => Error): void => this.#settle(seq)?.reject(error());
    const timer =
      timeoutMs === undefined
        ? undefined
        : setTimeout(() => {
            const error = new RpcError('timeout', `${name} was not answered within ${timeoutMs} ms`);
            giveUp(() => this.#errors.ofConnection(error));
          }, timeoutMs);
    const onAbort = (): void => giveUp(() => signal!.reason as Error);
    signal?.addEventListener('abort', onAbort, { once: true });
    return () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    };
  }

  /** Removes and returns the call with this number; undefined if it was settled before. */
  #settle(seq: number): Waiting | undefined {
    const waiting = this.#waiting.get(seq);
    if (waiting === undefined) return undefined;
    this.#waiting.delete(seq);
    waiting.settled?.();
    return waiting;
  }

  #send(message: Message, transfer?: readonly ArrayBuffer[]): void {
    if (this.#state.kind === 'open') this.#transport.send(message, transfer);
  }

  #unsendable(message: Message, error: Error): void {
    switch (message[0]) {
      case 'call':
        this.#settle(message[1])?.reject(error);
        return;
      case 'answer':
        this.#send(['failure', message[1], failureOf(error)]);
        return;
      case 'failure':
      case 'note':
        // Made of plain values by our own code: the other side would wait for it in vain.
        throw error;
    }
  }

  #receive(message: Message): void {
    if (this.#state.kind === 'closed') return;
    this.#heardMs = performance.now();
    if (!Array.isArray(message) || !this.#take(message)) this.#broken('a message is of no known form');
  }

  /** Returns false for a message of unknown form. */
  #take(message: Message): boolean {
    switch (message[0]) {
      case 'call': {
        const [, seq, name, request] = message;
        if (typeof seq !== 'number' || typeof name !== 'string') return false;
        this.#answer(seq, name, request);
        return true;
      }
      case 'answer':
      case 'failure': {
        const [kind, seq, outcome] = message;
        if (typeof seq !== 'number' || seq < 1 || seq > this.#seq) return false;
        if (kind === 'failure' && (typeof outcome !== 'object' || outcome === null)) return false;
        // If there is none, the call was abandoned and its answer is late.
        const waiting = this.#settle(seq);
        if (kind === 'answer') waiting?.resolve(outcome as never);
        else waiting?.reject(errorOf(outcome, this.#errors));
        return true;
      }
      case 'note': {
        const [, name, value] = message;
        try {
          this.#handlers.get(name)?.(value);
        } catch (error) {
          if (!this.#isAnswer(error, name)) throw error;
          return false;
        }
        return true;
      }
    }
    return false;
  }

  #answer(seq: number, name: string, request: unknown): void {
    try {
      const handler = this.#handlers.get(name);
      if (handler === undefined) throw new Error(`nothing here answers '${name}'`);
      const answer = handler(request);
      if (answer instanceof Promise)
        answer.then(
          (value) => this.#send(['answer', seq, value]),
          (error: unknown) => this.#fail(seq, name, error),
        );
      else if (answer instanceof Transferred) this.#send(['answer', seq, answer.value], answer.buffers);
      else this.#send(['answer', seq, answer]);
    } catch (error) {
      this.#fail(seq, name, error);
    }
  }

  #fail(seq: number, name: string, error: unknown): void {
    if (!this.#isAnswer(error, name)) throw error;
    this.#send(['failure', seq, failureOf(error)]);
  }

  #broken(reason: string): void {
    if (this.#state.kind === 'closed') return;
    this.close(reason);
    this.#onBroken(reason);
  }
}
