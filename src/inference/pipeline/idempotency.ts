import { createHmac } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';

import { withDeadline } from '../../platform/deadline.ts';
import type { Headers } from '../dialects/dialect.ts';
import { ApiError } from '../../platform/errors.ts';
import type { ErrorBody } from '../../platform/errors.ts';
import { heapLimitBytes } from '../../platform/memory.ts';
import type { Claimed } from '../../store/repositories/idempotency.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { rowBytes } from '../../store/row-facts.ts';
import { StoreError } from '../../store/store-error.ts';
import { errorOfCancel } from './cancellation.ts';
import type { CancelReason } from './cancellation.ts';
import type { Order } from './order.ts';
import { Recording } from './recording.ts';
import type { RecordingBudget } from './recording.ts';
import type { ActiveRequests, ActiveRequest } from './active-requests.ts';
import type { InferenceRoute } from './route.ts';
import { decryptAnswer, encryptAnswer } from './encrypted-answer.ts';
import { abortSignalOf } from '../../platform/stop-signal.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/** How long a key refers to its request. */
const keptMs = 86_400_000;
/** A longer answer is not kept and cannot be joined. 65,536 tokens with 120 bytes each on the wire. */
const answerCharactersMax = 8_388_608;
/** Characters of all answers in progress, across all accounts: at most an eighth of the heap, whose limit is given in bytes. */
export const underWayCharactersMax = (heapBytes: number): number => Math.min(134_217_728, Math.floor(heapBytes / 8));
/** Bytes of kept requests per account; the oldest are evicted. */
const accountBytesMax = 134_217_728;
const bytesMax = 4_294_967_296;
/** An account whose kept requests have grown by this much is tidied immediately. */
const grownBytesMax = accountBytesMax / 2;
/** How many requests may wait for the same answer in this process. */
const twinsMax = 256;
/**
 * How long a generation continues without a reader: clients that lose their connection come back within eight seconds
 * (docs/decisions/008-idempotency.md).
 */
const graceMs = 10_000;
const keyLengthMax = 255;
/** The store must answer a claim within this time, or the request is refused. */
const claimTimeoutMs = 5_000;
/** How long an answer waits to be kept. */
const keepTimeoutMs = 2_000;
/** Interval for polling a request that another process runs. */
const lookMsMin = 50;
const lookMsMax = 500;

const headerName = 'Idempotency-Key';

/** Returns the request's key. Throws `schema_validation_failed`. */
export function idempotencyKeyOf(headers: Headers): string | undefined {
  const value = headers['idempotency-key'];
  if (value === undefined) return undefined;
  if (typeof value === 'string' && value.length <= keyLengthMax && /^[\x21-\x7e]+$/.test(value)) return value;
  throw new ApiError(
    'schema_validation_failed',
    `The header ${headerName} must be one value of 1 to ${keyLengthMax} visible ASCII characters, for example a UUID.`,
    { param: headerName },
  );
}

/** A request with a key: 32-byte hashes, so that someone who has the database can guess neither key nor body. */
export interface KeyedRequest {
  readonly keyHash: Uint8Array;
  /** Hash of the body and of everything else that determines the answer. */
  readonly fingerprint: Uint8Array;
  /**
   * Encrypts the answer. It is derived from the client's own key and body, neither of which is kept, and is not stored anywhere: an answer
   * repeats parts of its request (instructions, tools, metadata), and only a client that sends the request again may read it.
   */
  readonly answerKey: Uint8Array;
}

export interface IdempotencyOptions {
  readonly repositories: Pick<Repositories, 'claimRequest' | 'keepAnswer' | 'leaveRequest' | 'tidyRequests'>;
  readonly secret: KeyObject;
  /** This process's id among those that share the database. */
  readonly owner: () => Uint8Array;
  readonly running: ActiveRequests;
  readonly now: () => number;
  /** Counts the outcome of a request, where its key decides it. */
  readonly counted: (outcome: 'generated' | 'joined' | 'replayed' | 'refused') => void;
  /** Reports an answer that could not be kept, a claim not released, or old ones not deleted. */
  readonly failed: (what: 'keep' | 'leave' | 'tidy', code: string) => void;
  readonly graceMs?: number;
}

/** Runs an order for its key: writes to the recording and returns its last text. */
export interface Generate {
  (generation: {
    readonly recording: Recording;
    /** The generation's signal; its clients have their own. */
    readonly signal: StopSignal;
    /** Stores the answer, which ends with this last text; to be called before the charge. Throws when it may not be charged. */
    readonly keep: (last: string) => Promise<void>;
  }): Promise<string>;
}

/** The request that produced the answer for a key. */
export interface Origin {
  /** `x-request-id` of the request that was, or is being, generated. */
  readonly publicId: string;
  readonly isEarlier: boolean;
}

/** The requests for one key in this process, while the first of them is in progress. */
export class KeyedAnswer {
  readonly recording: Recording;
  readonly fingerprint: Uint8Array;
  readonly generation: ActiveRequest;
  /** Set as soon as it is known. */
  origin: Origin | undefined;
  /** The model that serves the request, if not the one requested; set before anything of the answer is written. */
  servedBy: string | undefined;
  /** Formats the error that ends a stream of this answer early. */
  errorText: ((error: ErrorBody) => string) | undefined;
  #grace: NodeJS.Timeout | undefined;

  constructor(request: KeyedRequest, generation: ActiveRequest, budget: RecordingBudget, grace: number) {
    this.fingerprint = request.fingerprint;
    this.generation = generation;
    this.recording = new Recording({
      charactersMax: answerCharactersMax,
      budget,
      abandoned: (reason) => {
        // A client that lost its connection may come back; one that was sent the reason will not.
        if (reason !== 'client-left' && reason !== 'reader-stalled') generation.cancel(reason);
        else this.#grace = setTimeout(() => generation.cancel('client-left'), grace);
      },
      tooLate: () => answered(this.origin?.publicId ?? ''),
    });
  }

  /** Called before a reader follows the answer. */
  join(): void {
    clearTimeout(this.#grace);
  }

  end(): void {
    clearTimeout(this.#grace);
    this.generation.end();
  }
}

/**
 * `Idempotency-Key` (docs/decisions/008-idempotency.md): of an account's requests with the same key, one is generated and charged, and all
 * get its answer, for a day, from every process.
 *
 * The claim is durable before the generation starts, and the answer before the charge, so that after a crash at any moment the ledger
 * decides: if the request was charged, its answer is stored; if not, it is generated again.
 */
export class Idempotency {
  readonly #options: IdempotencyOptions;
  readonly #answers = new Map<string, KeyedAnswer>();
  readonly #budget: RecordingBudget = {
    charactersMax: underWayCharactersMax(heapLimitBytes()),
    characters: 0,
  };
  /** Bytes kept since the last tidying, by account. */
  #grown = new Map<string, number>();
  #tidying: Promise<void> | undefined;

  constructor(options: IdempotencyOptions) {
    this.#options = options;
  }

  /** Hashes a key and its request. A large body yields to other requests while it is hashed. */
  async read(
    key: string,
    accountId: string,
    request: {
      readonly route: InferenceRoute;
      readonly zdr: boolean;
      readonly headers: Headers;
      readonly blocks: readonly Uint8Array[];
    },
  ): Promise<KeyedRequest> {
    const { secret } = this.#options;
    const keyHash = createHmac('sha256', secret).update(`key\0${accountId}\0${key}`).digest();
    const { route, zdr, headers, blocks } = request;
    const said = [route.api, zdr, headers['anthropic-version'] ?? null];
    const body = createHmac('sha256', secret).update(`request\0${JSON.stringify(said)}\0`);
    const answerKey = createHmac('sha256', secret).update(`answer\0${accountId}\0${key}\0`);
    for (const [index, block] of blocks.entries()) {
      if (index > 0) await nextTurn();
      body.update(block);
      answerKey.update(block);
    }
    const [fingerprint, own] = [body.digest(), answerKey.digest()];
    return {
      keyHash: Uint8Array.from(keyHash),
      fingerprint: Uint8Array.from(fingerprint),
      answerKey: Uint8Array.from(own),
    };
  }

  /**
   * Returns the key's answer, and whether the caller must `produce` it. Throws when the key refers to another request, or too many wait for
   * its answer.
   */
  enter(order: Order, request: KeyedRequest): { readonly answer: KeyedAnswer; readonly isFirst: boolean } {
    const name = nameOf(order, request);
    const there = this.#answers.get(name);
    if (there !== undefined) {
      if (Buffer.compare(there.fingerprint, request.fingerprint) !== 0) throw this.#refused(otherRequest());
      if (there.recording.readers >= twinsMax) throw this.#refused(tooManyTwins());
      there.join();
      this.#options.counted('joined');
      return { answer: there, isFirst: false };
    }
    const generation = this.#options.running.beginGeneration();
    generation.claim(order.account.id, order.key.id);
    const answer = new KeyedAnswer(request, generation, this.#budget, this.#options.graceMs ?? graceMs);
    this.#answers.set(name, answer);
    return { answer, isFirst: true };
  }

  /** Generates the answer, or finds one generated earlier, here or elsewhere. Failures are reported to the readers. */
  async produce(answer: KeyedAnswer, order: Order, request: KeyedRequest, publicId: string, generate: Generate) {
    const { recording } = answer;
    const name = nameOf(order, request);
    try {
      const last =
        (await this.#find(answer, order, request, publicId)) ?? (await this.#run(answer, order, request, generate));
      this.#answers.delete(name);
      recording.end(last);
    } catch (error) {
      // Later requests start over.
      this.#answers.delete(name);
      recording.fail(error);
    } finally {
      answer.end();
    }
  }

  /** Deletes requests that are too old or exceed the bounds. Rounds do not overlap. */
  tidy(): Promise<void> {
    this.#tidying ??= this.#tidyOnce().finally(() => (this.#tidying = undefined));
    return this.#tidying;
  }

  /** Returns the whole answer if it exists; otherwise claims the key. */
  async #find(answer: KeyedAnswer, order: Order, request: KeyedRequest, publicId: string): Promise<string | undefined> {
    const { signal } = answer.generation;
    for (let waitMs = lookMsMin; ; waitMs = Math.min(2 * waitMs, lookMsMax)) {
      if (signal.aborted) throw errorOfCancel(signal.reason as CancelReason, order.model.id);
      const claimed = await this.#claim(order, request);
      switch (claimed.outcome) {
        case 'claimed':
          answer.origin = { publicId, isEarlier: false };
          this.#options.counted('generated');
          return undefined;
        case 'other':
          throw this.#refused(otherRequest());
        case 'answered': {
          const kept = opened(claimed.answer, request);
          if (kept === undefined) throw this.#refused(answered(claimed.publicId));
          this.#options.counted('replayed');
          answer.origin = { publicId: claimed.publicId, isEarlier: true };
          answer.servedBy = claimed.modelId;
          return kept;
        }
        case 'running':
          answer.origin = { publicId: claimed.publicId, isEarlier: true };
          await sleep(waitMs, undefined, { signal: abortSignalOf(signal) }).catch(() => {});
      }
    }
  }

  async #run({ recording, generation }: KeyedAnswer, order: Order, request: KeyedRequest, generate: Generate) {
    const keep = (last: string): Promise<void> => this.#keep(recording, order, request, last);
    try {
      return await generate({ recording, signal: generation.signal, keep });
    } catch (error) {
      void this.#leave(order, request);
      throw error;
    }
  }

  async #claim(order: Order, request: KeyedRequest): Promise<Claimed> {
    const { repositories, owner, now } = this.#options;
    const at = now();
    try {
      return await withDeadline(
        repositories.claimRequest({
          accountId: order.account.id,
          keyHash: request.keyHash,
          fingerprint: request.fingerprint,
          requestId: order.id,
          publicId: order.publicId,
          owner: owner(),
          now: at,
          expiredAt: at - keptMs,
        }),
        claimTimeoutMs,
        noAnswer(claimTimeoutMs),
      );
    } catch (error) {
      // Without the claim, nothing can be guaranteed.
      throw new ApiError('internal_error', `The database does not answer, and requests with ${headerName} need it.`, {
        retryAfterSeconds: 1,
        cause: error,
      });
    }
  }

  #refused(error: ApiError): ApiError {
    this.#options.counted('refused');
    return error;
  }

  async #keep(recording: Recording, order: Order, request: KeyedRequest, last: string): Promise<void> {
    const { keyHash, answerKey } = request;
    // §4.2.6: content is never kept, but the ledger records that the request was answered.
    const whole = order.request.retain ? recording.whole(last) : undefined;
    const answer = whole === undefined || whole.length > answerCharactersMax ? null : encryptAnswer(whole, answerKey);
    const accountId = order.account.id;
    let isOwn: boolean;
    try {
      const { repositories } = this.#options;
      isOwn = await withDeadline(
        repositories.keepAnswer({ accountId, keyHash, requestId: order.id, answer }),
        keepTimeoutMs,
        noAnswer(keepTimeoutMs),
      );
    } catch (error) {
      // The claim stays: later requests learn that it was answered.
      this.#options.failed('keep', codeOf(error));
      return;
    }
    // This process has expired, and another one runs the request.
    if (!isOwn)
      throw new ApiError('internal_error', 'Another process has taken over this request; nothing is charged here.', {
        retryAfterSeconds: 1,
      });
    const grown = (this.#grown.get(accountId) ?? 0) + rowBytes + (answer?.byteLength ?? 0);
    this.#grown.set(accountId, grown);
    if (grown > grownBytesMax) void this.tidy();
  }

  async #leave(order: Order, { keyHash }: KeyedRequest): Promise<void> {
    try {
      await this.#options.repositories.leaveRequest({ accountId: order.account.id, keyHash, requestId: order.id });
    } catch (error) {
      // The next request sees in the ledger that this one was not charged.
      this.#options.failed('leave', codeOf(error));
    }
  }

  async #tidyOnce(): Promise<void> {
    const grown = this.#grown;
    this.#grown = new Map();
    try {
      const { repositories, now } = this.#options;
      const accountIds = [...grown.keys()];
      await repositories.tidyRequests({ expiredAt: now() - keptMs, accountIds, accountBytesMax, bytesMax });
    } catch (error) {
      for (const [accountId, bytes] of grown) this.#grown.set(accountId, bytes + (this.#grown.get(accountId) ?? 0));
      this.#options.failed('tidy', codeOf(error));
    }
  }
}

const opened = (encrypted: Uint8Array | null, { answerKey }: KeyedRequest): string | undefined =>
  encrypted === null ? undefined : decryptAnswer(encrypted, answerKey);

const nameOf = (order: Pick<Order, 'account'>, { keyHash }: KeyedRequest): string =>
  `${order.account.id} ${Buffer.from(keyHash).toString('hex')}`;

/** Contracts decision 19. */
const otherRequest = (): ApiError =>
  new ApiError(
    'schema_validation_failed',
    `This ${headerName} was used for another request in the last 24 hours: with another body, endpoint or headers. Use a new key for each request, and the same key only for retries.`,
    { param: headerName },
  );

const tooManyTwins = (): ApiError =>
  new ApiError('backend_at_capacity', `Too many requests are waiting for the answer of this ${headerName}.`, {
    retryAfterSeconds: 1,
  });

/** Must not be retried: a 409 would make the clients that add keys by themselves retry. */
const answered = (publicId: string): ApiError =>
  new ApiError(
    'http_409',
    `The request with this ${headerName} was answered and charged as ${publicId}. Its answer was not stored, because of zero data retention or its length, so it cannot be sent again.`,
    { param: headerName, extra: { first_request_id: publicId }, headers: { 'x-should-retry': 'false' } },
  );

const codeOf = (error: unknown): string => (error instanceof StoreError ? error.code : 'unexpected');

const noAnswer = (deadlineMs: number) => (): never => {
  throw new StoreError('failed', `no answer within ${deadlineMs} ms`);
};
