import { ApiError, atCap } from '../../platform/errors.ts';

/**
 * Maximum bytes of memory per byte of a body while it is read and parsed. Measured, with a few MB for the thread left out: 2.8 for ASCII
 * (texts and escapes), 2.9 for Chinese, 3.2 for base64 of an image, 4.1 of a file, 4.6 for an image beside one Chinese character, and 5.7
 * for an ASCII text with one such character, which is stored with two bytes per character: the text and its value, or the value and its
 * clone, in the thread, and the clone and the value here.
 */
export const copiesWhileParsed = 6;
/** The same once it is parsed: the value, at up to two bytes per character. What is sent on is made in pieces as it is sent. */
export const copiesWhileHeld = 2;
/** The same for a heap: a value, and the garbage of the one before it. */
export const copiesInHeap = 2.5;
/** Memory for each brace, bracket, comma and colon: at worst they make objects that are empty or have one member. */
const structuralBytes = 64;

/** An account may take this many times what would be left for the others. */
const shareOfLeft = 7;

/**
 * The memory for all request bodies, and what is made of them (contracts decision 23). However much an account asks for, an eighth of what
 * the others do not use stays free, so an account that sends all it can does not keep out the others' small requests. A second such account
 * gets seven eighths of that eighth; as both release and take memory, their shares become equal, and a fifteenth remains.
 */
export class BodyBudget {
  /** May change at any time; memory already taken stays taken. */
  bytesMax: number;
  #bytes = 0;
  readonly #byAccount = new Map<string, number>();

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Throws `backend_at_capacity` 429 when there is no room, in total or for the account. */
  take(bytes: number, accountId?: string): void {
    const left = this.bytesMax - this.#bytes - bytes;
    if (left < 0) throw noRoom('Too many large requests are being read.', this.bytesMax);
    if (accountId !== undefined) {
      const own = (this.#byAccount.get(accountId) ?? 0) + bytes;
      if (own > shareOfLeft * left)
        throw noRoom('Too many large requests of this account are being read.', this.bytesMax);
      this.#byAccount.set(accountId, own);
    }
    this.#bytes += bytes;
  }

  give(bytes: number, accountId?: string): void {
    this.#bytes -= bytes;
    if (accountId === undefined) return;
    const own = (this.#byAccount.get(accountId) ?? 0) - bytes;
    if (own > 0) this.#byAccount.set(accountId, own);
    else this.#byAccount.delete(accountId);
  }

  share(accountId?: string): BodyShare {
    return new BodyShare(this, accountId);
  }
}

/** The part of the budget that one request has taken. */
export class BodyShare {
  readonly #budget: BodyBudget;
  readonly #accountId: string | undefined;
  #bytes = 0;
  /** Bytes of the body for which memory was taken, and those that have arrived. */
  #bodyBytes = 0;
  #arrivedBytes = 0;

  constructor(budget: BodyBudget, accountId: string | undefined) {
    this.#budget = budget;
    this.#accountId = accountId;
  }

  /** Takes memory. Throws `backend_at_capacity`, as do all methods below. */
  take(bytes: number): void {
    this.#budget.take(bytes, this.#accountId);
    this.#bytes += bytes;
  }

  give(bytes: number): void {
    this.#budget.give(bytes, this.#accountId);
    this.#bytes -= bytes;
  }

  /** Takes memory for a body of this size. */
  expect(bodyBytes: number): void {
    this.take(bodyBytes * copiesWhileParsed);
    this.#bodyBytes += bodyBytes;
  }

  /** Records that more of the body has arrived. */
  arrive(bodyBytes: number): void {
    this.#arrivedBytes += bodyBytes;
    if (this.#arrivedBytes > this.#bodyBytes) this.expect(this.#arrivedBytes - this.#bodyBytes);
  }

  /** Adjusts to the parsed body, whose text has this many structural characters. */
  parsed(structuralCharacters: number): void {
    // Given back first, so that the largest body has room for them.
    this.give(this.#bodyBytes * (copiesWhileParsed - copiesWhileHeld));
    this.take(structuralCharacters * structuralBytes);
  }

  /** Gives back the rest. */
  end(): void {
    this.give(this.#bytes);
  }
}

const noRoom = (why: string, bytesMax: number): ApiError =>
  new ApiError('backend_at_capacity', `${why} Try again shortly.`, atCap(bytesMax, 1));

/** The share of all memory that one body may take: what an account may have while others have a sixteenth for small requests. */
const shareOfLargest = (shareOfLeft / (shareOfLeft + 1)) * (15 / 16);

/** The memory with which an account may have bodies of this many bytes, alongside small requests of others. */
export const memoryForBodies = (bodyBytes: number): number =>
  Math.ceil((bodyBytes * copiesWhileParsed) / shareOfLargest);

/** The largest body that has room while there is no other large one. */
export const largestBody = (bytesMax: number): number => Math.floor((bytesMax * shareOfLargest) / copiesWhileParsed);
