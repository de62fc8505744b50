import { ApiError, atCap } from '../../platform/errors.ts';

/**
 * Bytes of memory that a byte of a body takes at most at once while it is read and parsed. Measured, with a few MB for the thread left
 * out: 2.8 for ASCII, of texts and of escapes, 2.9 for Chinese, 3.2 for base64 of an image, 4.1 of a file, 4.6 for an image beside
 * one Chinese character, and 5.7 for an ASCII text with one in it, which is kept with two bytes for a character: in the thread the
 * text and its value, or the value and its clone, and here the clone and the value.
 */
export const copiesWhileParsed = 6;
/** From then on: the value, at up to two bytes for each. A request is sent on in pieces that are made as they are sent. */
export const copiesWhileHeld = 2;
/** Of a heap: a value, and the garbage of one before it. */
export const copiesInHeap = 2.5;
/** What each brace, bracket, comma and colon becomes: at worst objects that are empty or have one member. */
const structuralBytes = 64;

/** An account may take this many times what would be left to the others. */
const shareOfLeft = 7;

/**
 * Memory that request bodies take at once, and what is made of them, over all requests (contracts decision 23). However much an
 * account asks for, an eighth of what the others do not have is left, so one that sends all that it can does not keep out the small
 * requests of others. A second that comes then has seven eighths of that eighth; as both give back and take again their shares become
 * equal, and a fifteenth remains.
 */
export class BodyBudget {
  /** May change at any time; what has been taken stays. */
  bytesMax: number;
  #bytes = 0;
  readonly #byAccount = new Map<string, number>();

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Throws `backend_at_capacity` 429 when there is no room, for anyone or for the account. */
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

/** What one request has taken of the budget. */
export class BodyShare {
  readonly #budget: BodyBudget;
  readonly #accountId: string | undefined;
  #bytes = 0;
  /** Bytes of the body that have been taken before they come, or have come. */
  #bodyBytes = 0;
  #arrivedBytes = 0;

  constructor(budget: BodyBudget, accountId: string | undefined) {
    this.#budget = budget;
    this.#accountId = accountId;
  }

  /** Throws `backend_at_capacity`, as all below. */
  take(bytes: number): void {
    this.#budget.take(bytes, this.#accountId);
    this.#bytes += bytes;
  }

  give(bytes: number): void {
    this.#budget.give(bytes, this.#accountId);
    this.#bytes -= bytes;
  }

  /** Room for a body of this size. */
  expect(bodyBytes: number): void {
    this.take(bodyBytes * copiesWhileParsed);
    this.#bodyBytes += bodyBytes;
  }

  /** More of the body has come. */
  arrive(bodyBytes: number): void {
    this.#arrivedBytes += bodyBytes;
    if (this.#arrivedBytes > this.#bodyBytes) this.expect(this.#arrivedBytes - this.#bodyBytes);
  }

  /** The body becomes a value, whose text has so many structural characters. */
  parsed(structuralCharacters: number): void {
    // First, so that the largest body has room for them.
    this.give(this.#bodyBytes * (copiesWhileParsed - copiesWhileHeld));
    this.take(structuralCharacters * structuralBytes);
  }

  /** Gives back what is left of it. */
  end(): void {
    this.give(this.#bytes);
  }
}

const noRoom = (why: string, bytesMax: number): ApiError =>
  new ApiError('backend_at_capacity', `${why} Try again shortly.`, atCap(bytesMax, 1));

/** Of all the memory, for one body: what an account may have while others have a sixteenth with small requests. */
const shareOfLargest = (shareOfLeft / (shareOfLeft + 1)) * (15 / 16);

/** The memory in which an account may have bodies of so many bytes, beside the small requests of others. */
export const memoryForBodies = (bodyBytes: number): number =>
  Math.ceil((bodyBytes * copiesWhileParsed) / shareOfLargest);

/** The largest body for which there is room when there is no other large one. */
export const largestBody = (bytesMax: number): number => Math.floor((bytesMax * shareOfLargest) / copiesWhileParsed);
