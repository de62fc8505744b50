import type { KeyFilter } from './key-filter.ts';

/** Of hashes that were looked for in vain: 5 MB. */
const absentMax = 50_000;

/**
 * Which hashes are of no key, as far as this process knows without asking the database: those that it has just been asked for in
 * vain, and all that a filter of every key's hash has never seen. Keys that are created or rotated anywhere must be noted here.
 */
export class UnknownKeys {
  /** Looked for in vain, the oldest first. */
  readonly #absent = new Set<string>();
  /** Of all keys of the database; undefined before it has been read. */
  #filter: KeyFilter | undefined;
  /** The next one, while it is being read. */
  #next: KeyFilter | undefined;

  /** There is a filter, and it is not too full. */
  get isComplete(): boolean {
    return this.#filter?.isOverfull === false;
  }

  /** Hashes in the filter. */
  get size(): number {
    return this.#filter?.size ?? 0;
  }

  /** false: there may be a key with this hash. */
  has(hash: string): boolean {
    return this.#absent.has(hash) || this.#filter?.has(bytesOf(hash)) === false;
  }

  /** The database has no key with this hash. */
  noteAbsent(hash: string): void {
    this.#absent.add(hash);
    for (const oldest of this.#absent) {
      if (this.#absent.size <= absentMax) break;
      this.#absent.delete(oldest);
    }
  }

  /** There is a key with this hash. */
  noteKey(hash: string): void {
    this.#absent.delete(hash);
    const bytes = bytesOf(hash);
    this.#filter?.add(bytes);
    this.#next?.add(bytes);
  }

  /** What is known may be out of date. */
  forget(): void {
    this.#absent.clear();
    this.#filter = undefined;
    this.#next = undefined;
  }

  /**
   * Takes a filter that is to be filled with the hashes of all keys, before the first of them is read. Keys that are noted
   * meanwhile are put into it too.
   */
  fill(next: KeyFilter): void {
    this.#next = next;
  }

  /** The filter has all of them. `false`: what is known was forgotten meanwhile, so another one is needed. */
  filled(next: KeyFilter): boolean {
    if (this.#next !== next) return false;
    this.#filter = next;
    this.#next = undefined;
    return true;
  }
}

const bytesOf = (hash: string): Uint8Array => Buffer.from(hash, 'latin1');
