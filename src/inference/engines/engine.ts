import type { ApiError } from '../../platform/errors.ts';
import type { TakeBatch } from '../../generation/event.ts';
import type { EngineRequest } from '../../generation/request.ts';
import type { ServerReport } from '../../generation/server-report.ts';
import type { ImageTokenRule } from './image-tokens.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { TraceHeaders } from '../../platform/telemetry/trace-context.ts';

/** Whether an engine can take work now, in words that help an operator. */
export type EngineStatus =
  /** `detail` reports something unusual: an unloaded model takes work, and is loaded again for it. */
  | { readonly state: 'ready'; readonly detail?: string }
  | { readonly state: 'starting'; readonly detail: string; readonly retryAfterSeconds?: number }
  /** `retryAfterSeconds`: when its state will be known again, if that is known. */
  | { readonly state: 'down'; readonly detail: string; readonly retryAfterSeconds?: number };

/** What became of a cheap question to a server: it answered, it did not in time, or the engine is closed. */
export type Look = 'answered' | 'silent' | 'closed';

/** A model that an engine loads by itself, as operators see it. */
export interface ResidenceReport {
  /** `waiting`: for other models to make room. */
  readonly state: 'unloaded' | 'waiting' | 'loading' | 'loaded';
  /** What it takes while it is loaded; `undefined` until its file is there. */
  readonly memoryBytes: number | undefined;
  /** Of one answer, or of what an embedding model reads; `undefined` until it was measured. */
  readonly tokensPerSecond: number | undefined;
  /** What it is computed with, and why it is not all of it on a GPU, in words for an operator; `undefined` until its file is there. */
  readonly compute: ComputeReport | undefined;
}

export interface ComputeReport {
  readonly with: string;
  /** Why it is not all of it on a GPU. */
  readonly note?: string;
  /** `false`: the processor, as anybody expects. */
  readonly isOfNote: boolean;
}

/**
 * Generates answers. Its promises, which `tests/inference/engines/` checks for every implementation:
 *
 * - It always streams, whatever its backend prefers.
 * - The first event is `start`. Batches are never empty. After the `finish` of every choice (and a last `usage`, when it
 *   has one) `generate` resolves; never before that, unless `take` wants no more: a backend that ends early is a failure.
 * - It hands over one batch at a time, and nothing once `take` has answered `false` or thrown: then the work stops, and `generate`
 *   resolves, or rejects with what was thrown. It never settles while `take` has a batch.
 * - Calls of a choice come one after the other: once another call, text or reasoning has begun, none of its arguments follow.
 * - Otherwise it rejects with `ApiError`s only (`backend_*`, `no_healthy_backends`, `context_length_exceeded`, `internal_error`), without
 *   texts of the backend in their messages, or the signal's own reason when it was aborted.
 * - When the signal aborts, the work stops within 100 ms or one prefill chunk, even while `take` has a batch, and `generate`
 *   rejects at once, or when `take` has answered.
 * - It reads from its backend no faster than `take` answers, up to a bounded buffer.
 * - A batch with text, reasoning or a call ends with the `usage` up to there, so that a client that leaves pays for what it was
 *   given, however it was cut into batches. A figure that is an estimate is marked as counted.
 * - Usage is clamped to what is possible (integers, 0 ≤ cached ≤ prompt, 0 ≤ reasoning ≤ completion).
 * - Nothing of a request with `retain: false` outlives it.
 */
export interface Engine {
  /** `trace`: for a server that keeps traces itself. */
  generate(request: EngineRequest, signal: StopSignal, take: TakeBatch, trace?: TraceHeaders): Promise<void>;
  /** Exact number of prompt tokens after the template, or `undefined` when this backend cannot count. */
  countTokens(request: EngineRequest, signal: StopSignal): Promise<number | undefined>;
  /** The 400 for a request that this engine can never serve; nothing was tried. Absent where it serves everything. */
  refusal?(request: EngineRequest): ApiError | undefined;
  /** Token ids are below it; `undefined` while it is not known, absent where the backend does not report it. */
  readonly vocabularySize?: number | undefined;
  /** How many tokens an image may become; absent where this engine takes no images. */
  readonly imageTokens?: ImageTokenRule;
  status(): EngineStatus;
  /** Asks the server something cheap, for seconds at most; never rejects. Absent where there is no server. */
  look?(): Promise<Look>;
  /**
   * Asks the server for its load, for seconds at most; never rejects. `undefined`: it did not tell. Absent where there is no server, or
   * one of a kind that does not tell.
   */
  readonly report?: (() => Promise<ServerReport | undefined>) | undefined;
  /** Absent where a server has the model. */
  readonly residence?: ResidenceReport;
  /** Number of answers that wait for a slot; absent where this engine has no queue. */
  readonly waiting?: number;
  /** Stops taking work, ends what runs, frees processes and sockets. */
  close(): Promise<void>;
}
