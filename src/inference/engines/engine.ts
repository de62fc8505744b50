import type { ApiError } from '../../platform/errors.ts';
import type { TakeBatch } from '../../generation/event.ts';
import type { EngineRequest } from '../../generation/request.ts';
import type { ServerReport } from '../../generation/server-report.ts';
import type { ImageTokenRule } from './image-tokens.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { TraceHeaders } from '../../platform/telemetry/trace-context.ts';

/** Whether an engine can accept work now, in words that help an operator. */
export type EngineStatus =
  /** `detail` reports something unusual: an unloaded model accepts work, and is loaded again for it. */
  | {
      readonly state: 'ready';
      readonly detail?: string;
      /** The last connection failed: requests may still try, but operators should know. */
      readonly isUnreachable?: true;
    }
  | { readonly state: 'starting'; readonly detail: string; readonly retryAfterSeconds?: number }
  /** The server is started and stopped by the service: requests may wait for it (`summon`). */
  | { readonly state: 'stopped' | 'sleeping'; readonly detail: string }
  /** `retryAfterSeconds`: when its state will be known again, if that can be predicted. */
  | { readonly state: 'down'; readonly detail: string; readonly retryAfterSeconds?: number };

/** The result of a cheap probe of a server: it answered, it did not answer in time, or the engine is closed. */
export type Look = 'answered' | 'silent' | 'closed';

/** Requests that wait for a server that is not there. */
export interface Demand {
  /** Without lines of batches. */
  readonly waiting: number;
  /** Requests that are of no batch have come in the last minute. */
  readonly isRecent: boolean;
  /** Called once when the server is there, or will not be. */
  offer(): void;
}

/** A server that the service starts itself, as operators see it. */
export interface ServerReading {
  readonly state: string;
  readonly pid: number | undefined;
  /** How often it was started since the service began, and how often it has failed. */
  readonly starts: number;
  readonly failures: number;
  /** How long the last start took; 0: there was none. */
  readonly loadMs: number;
  /** What it needs of what it shares with others; `undefined`: it shares with none. */
  readonly memory: ServerMemory | undefined;
}

/** What a server that the service starts needs of the GPU, or the memory, that it shares. */
export interface ServerMemory {
  readonly group: string;
  /** The part that the configuration says. */
  readonly declared: number | undefined;
  /** The most that it was seen to hold, and of how much. */
  readonly learned: { readonly on: 'gpu' | 'memory'; readonly bytes: number; readonly ofBytes: number } | undefined;
  /** It was seen to hold more than the configuration says. */
  readonly exceeds: boolean;
  /** It failed beside others with what was learned, so it gets all of the group. */
  readonly isDoubted: boolean;
}

/** A model that an engine loads itself, as operators see it. */
export interface ResidenceReport {
  /** `waiting`: for other models to make room. */
  readonly state: 'unloaded' | 'waiting' | 'loading' | 'loaded';
  /** Memory that it takes while loaded; `undefined` until its file is there. */
  readonly memoryBytes: number | undefined;
  /** Speed of one answer, or of reading inputs for an embedding model; `undefined` until measured. */
  readonly tokensPerSecond: number | undefined;
  /** What it is computed on, and why it is not entirely on a GPU, in words for an operator; `undefined` until its file is there. */
  readonly compute: ComputeReport | undefined;
}

export interface ComputeReport {
  readonly with: string;
  /** Why it is not entirely on a GPU. */
  readonly note?: string;
  /** `false`: the processor, as expected. */
  readonly isOfNote: boolean;
}

/**
 * An engine generates answers. It promises the following, which `tests/inference/engines/` checks for every implementation:
 *
 * - It always streams, whatever its backend prefers.
 * - The first event is `start`. Batches are never empty. After the `finish` of every choice (and a last `usage`, when it
 *   has one) `generate` resolves; never before that, unless `take` stops it: a backend that ends early is a failure.
 * - It hands over one batch at a time, and nothing after `take` has answered `false` or thrown: then the work stops, and `generate`
 *   resolves, or rejects with the error thrown. It never settles while `take` has a batch.
 * - Calls of a choice come one after the other: once another call, text or reasoning has begun, none of its arguments follow.
 * - Otherwise it rejects with `ApiError`s only (`backend_*`, `no_healthy_backends`, `context_length_exceeded`, `internal_error`), without
 *   the backend's texts in their messages, or with the signal's own reason when it was aborted.
 * - When the signal aborts, the work stops within 100 ms or one prefill chunk, even while `take` has a batch, and `generate`
 *   rejects immediately, or when `take` has answered.
 * - It reads from its backend no faster than `take` answers, up to a bounded buffer.
 * - A batch with text, reasoning or a call ends with the `usage` so far, so that a client that leaves pays for what it was
 *   given, no matter how it was split into batches. An estimated figure is marked as counted.
 * - Usage is clamped to what is possible (integers, 0 ≤ cached ≤ prompt, 0 ≤ reasoning ≤ completion).
 * - Nothing of a request with `retain: false` outlives it.
 */
export interface Engine {
  /** `trace`: for a server that keeps traces itself. */
  generate(request: EngineRequest, signal: StopSignal, take: TakeBatch, trace?: TraceHeaders): Promise<void>;
  /** Returns the exact number of prompt tokens after the template, or `undefined` if this backend cannot count. */
  countTokens(request: EngineRequest, signal: StopSignal): Promise<number | undefined>;
  /** Returns the 400 for a request that this engine can never serve, without trying anything. Absent if it serves everything. */
  refusal?(request: EngineRequest): ApiError | undefined;
  /** Token ids are below this; `undefined` while unknown, absent if the backend does not report it. */
  readonly vocabularySize?: number | undefined;
  /** How many tokens an image may become; absent if this engine does not accept images. */
  readonly imageTokens?: ImageTokenRule | undefined;
  status(): EngineStatus;
  /**
   * Sends the server a cheap request, for seconds at most; never rejects. `isIdle`: nothing is wrong, it just had no other request. Absent if
   * there is no server.
   */
  look?(isIdle?: boolean): Promise<Look>;
  /**
   * Asks the server for its load, for seconds at most; never rejects. `undefined`: it did not report it. Absent if there is no server, or
   * one of a kind that does not report.
   */
  readonly report?: (() => Promise<ServerReport | undefined>) | undefined;
  /**
   * Asks for a server that the service starts when it is needed; returns whether requests may wait for it. Absent if the service starts
   * none. `startTimeoutMs`: how long that may take. A line of a batch (`isLine`) takes memory from nobody: see `isSpare`.
   */
  summon?(demand: Demand, isLine: boolean): boolean;
  /** It is not there, and may be started for lines of batches: the memory that it needs is free, or with servers that nobody has used for a minute. */
  readonly isSpare?: boolean;
  readonly startTimeoutMs?: number;
  /** Before it can answer it has to load what another server of the model may have already. */
  readonly isCold?: boolean;
  readonly server?: ServerReading | undefined;
  /** Absent if a server has the model. */
  readonly residence?: ResidenceReport;
  /** How many answers it can write at the same time; absent if a server decides. */
  readonly slots?: number;
  /** Number of answers that wait for a slot; absent if this engine has no queue. */
  readonly waiting?: number;
  /** Stops accepting work, ends running work, and frees processes and sockets. */
  close(): Promise<void>;
}

/** An answer violates its bound: a form, or a call that is forced. The cause of the `backend_http_error` that its request ends with. */
export class UnboundFault extends Error {
  override readonly name = 'UnboundFault';
  /**
   * Whether the server must have ignored the bound: it wrote what the bound excludes, or ended where the bound forbids it. An end after a
   * thought does not count, because there a model may end despite any bound.
   */
  readonly isIgnored: boolean;
  constructor(message: string, isIgnored: boolean) {
    super(message);
    this.isIgnored = isIgnored;
  }
}
