import type { TakeBatch } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import type { ServerReport } from '../../../generation/server-report.ts';
import { ApiError, errorCodeOf } from '../../../platform/errors.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';
import type { TraceHeaders } from '../../../platform/telemetry/trace-context.ts';
import type { Demand, Engine, EngineStatus, Look, ServerReading } from '../engine.ts';
import type { ManagedServer, Open } from './managed-server.ts';

export interface ManagedEngineOptions {
  /** The model's public id, for errors. */
  readonly name: string;
  readonly open: Open;
  /** Other models may have the same one: a base and its adapters. */
  readonly managed: ManagedServer;
  readonly startTimeoutMs: number;
  /** What is said of the server is said here, and not at another model of the same server. */
  readonly tells: boolean;
}

/**
 * An ordinary HTTP engine whose server belongs to the service: each process of it has an engine of its own for each model, and while there is
 * none, requests may wait for one (`summon`) in the queue of their model.
 */
export class ManagedEngine implements Engine {
  readonly #name: string;
  readonly #server: ManagedServer;
  readonly #open: Open;
  readonly #tells: boolean;
  /** Never connects: it knows what servers of this kind can be asked for. */
  readonly #kind: Engine;
  readonly startTimeoutMs: number;
  readonly report: (() => Promise<ServerReport | undefined>) | undefined;

  constructor(options: ManagedEngineOptions) {
    this.#name = options.name;
    this.#open = options.open;
    this.#tells = options.tells;
    this.startTimeoutMs = options.startTimeoutMs;
    this.#kind = options.open(1);
    this.#server = options.managed;
    this.#server.join(this.#open);
    this.report = this.#kind.report === undefined ? undefined : async () => this.#engine?.report?.();
  }

  get #engine(): Engine | undefined {
    return this.#server.engineFor(this.#open);
  }

  get imageTokens(): Engine['imageTokens'] {
    return this.#kind.imageTokens;
  }

  get server(): ServerReading | undefined {
    const { state, pid, counts, memory } = this.#server;
    return this.#tells ? { state, pid, memory, ...counts } : undefined;
  }

  get isCold(): boolean {
    return this.#engine?.isCold === true;
  }

  async generate(request: EngineRequest, signal: StopSignal, take: TakeBatch, trace?: TraceHeaders): Promise<void> {
    signal.throwIfAborted();
    const engine = this.#engine;
    const { check } = this.#server;
    if (engine === undefined) throw goneError(this.#name);
    this.#server.began();
    const taking: TakeBatch = (batch) => {
      check.heard();
      return take(batch);
    };
    try {
      await engine.generate(request, signal, taking, trace);
    } catch (error) {
      if (errorCodeOf(error) === 'backend_timeout')
        void check.hangs(engine, request).then((hangs) => hangs && this.#server.hangs(engine));
      throw error;
    } finally {
      this.#server.over();
    }
  }

  /** A server is not started to count. */
  async countTokens(request: EngineRequest, signal: StopSignal): Promise<number | undefined> {
    return this.#engine?.countTokens(request, signal);
  }

  refusal(request: EngineRequest): ApiError | undefined {
    return (this.#engine ?? this.#kind).refusal?.(request);
  }

  summon(demand: Demand, isLine: boolean): boolean {
    return isLine ? this.#server.summonForLine(demand) : this.#server.summon(demand);
  }

  get isSpare(): boolean {
    return this.#server.isSpare;
  }

  async look(isIdle?: boolean): Promise<Look> {
    // One that is not there is nobody's fault.
    return (await this.#engine?.look?.(isIdle)) ?? 'closed';
  }

  status(): EngineStatus {
    const { state, problem, pauseLeftMs } = this.#server;
    const engine = this.#engine;
    if (engine !== undefined) return engine.status();
    switch (state) {
      case 'closed':
        return { state: 'down', detail: 'closed' };
      case 'failed':
        return {
          state: 'down',
          detail: problem ?? 'it has ended',
          retryAfterSeconds: Math.max(1, Math.ceil(pauseLeftMs / 1_000)),
        };
      case 'stopped':
        return problem === undefined
          ? { state: 'stopped', detail: 'It is started when it is asked for.' }
          : { state: 'down', detail: problem };
      case 'sleeping':
        return { state: 'sleeping', detail: 'It is woken when it is asked for.' };
      case 'waiting':
        return { state: 'stopped', detail: 'It waits for its turn: others have the memory that it needs.' };
      case 'starting':
        return { state: 'starting', detail: 'Its server is being started.' };
      case 'stopping':
        return { state: 'stopped', detail: 'It is being stopped.' };
      case 'ready':
        return { state: 'stopped', detail: 'It finishes what it has begun: others wait for the memory that it has.' };
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#server.leaveBy(this.#open), this.#kind.close()]);
  }
}

const goneError = (model: string): ApiError =>
  new ApiError('no_healthy_backends', 'No backend of the model is available. Try again later, or use another model.', {
    extra: { model },
  });
