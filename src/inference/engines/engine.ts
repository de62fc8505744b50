import type { ApiError } from '../../platform/errors.ts';
import type { GenerationStream } from '../../generation/event.ts';
import type { EngineRequest } from '../../generation/request.ts';
import type { ImageTokenRule } from './image-tokens.ts';

/** Whether an engine can take work now, in words that an operator can act on. */
export type EngineStatus =
  /** A detail says what is unusual: a model that is unloaded takes work, and is loaded again for it. */
  | { readonly state: 'ready'; readonly detail?: string }
  | { readonly state: 'starting'; readonly detail: string; readonly retryAfterSeconds?: number }
  /** `retryAfterSeconds`: when it will be known again, where that is known. */
  | { readonly state: 'down'; readonly detail: string; readonly retryAfterSeconds?: number };

/**
 * Something that generates. Its promises, which `tests/inference/engines/` checks for every implementation:
 *
 * - It always streams, whatever its backend prefers.
 * - The first event is `start`. Batches are never empty. After the `finish` of every choice (and a last `usage`, when it
 *   has one) the stream returns; it never returns before that: a backend that ends early is a failure and throws.
 * - It throws `ApiError`s only (`backend_*`, `no_healthy_backends`, `context_length_exceeded`, `internal_error`), without
 *   texts of the backend in their messages, or the signal's own reason when it was aborted.
 * - When the signal aborts, a pending read rejects at once and the work behind it stops within 100 ms or one prefill
 *   chunk, also when nobody reads. Leaving a `for await` early stops the work too.
 * - It is pulled: it reads from its backend no faster than its reader takes batches, up to a bounded buffer.
 * - Usage is clamped to what is possible (integers, 0 ≤ cached ≤ prompt, 0 ≤ reasoning ≤ completion).
 * - Nothing of a request with `retain: false` outlives it.
 */
export interface Engine {
  generate(request: EngineRequest, signal: AbortSignal): GenerationStream;
  /** Exact number of prompt tokens after the template, or `undefined` when this backend cannot count. */
  countTokens(request: EngineRequest, signal: AbortSignal): Promise<number | undefined>;
  /** What this engine cannot do of a request, for good: 400, and nothing of it was tried. Absent where it can do everything. */
  refusal?(request: EngineRequest): ApiError | undefined;
  /** Token ids are below it; `undefined` while it is not known, absent where the backend does not tell. */
  readonly vocabularySize?: number | undefined;
  /** How many tokens an image may become; absent where this engine takes no images. */
  readonly imageTokens?: ImageTokenRule;
  status(): EngineStatus;
  /** Answers that wait for a place; absent where this engine has no queue. */
  readonly waiting?: number;
  /** Stops taking work, ends what runs, frees processes and sockets. */
  close(): Promise<void>;
}
