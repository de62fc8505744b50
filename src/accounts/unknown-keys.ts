import type { KeyFilter } from './key-filter.ts';

/** Maximum hashes remembered as not found: 5 MB. */
const absentMax = 50_000;

/**
 * Hashes that belong to no key, as far as this process knows without asking the database: those recently queried and not found, and all
 * that are not in a filter of every key's hash. Keys created or rotated anywhere must be noted here.
 */
export class UnknownKeys {
  /** Queried and not found, oldest first. */
  readonly #absent = new Set<string>();
  /** Holds all keys of the database; undefined before it has been read. */
  #filter: KeyFilter | undefined;
  /** The next filter, while it is being read. */
  #next: KeyFilter | undefined;

  /** Whether there is a filter that is not too full. */
  get isComplete(): boolean {
    return this.#filter?.isOverfull === false;
  }

  /** Number of hashes in the filter. */
  get size(): number {
    return this.#filter?.size ?? 0;
  }

  /** Whether no key has this hash; false: one may. */
  has(hash: string): boolean {
    return this.#absent.has(hash) || this.#filter?.has(bytesOf(hash)) === false;
  }

  /** Notes that the database has no key with this hash. */
  noteAbsent(hash: string): void {
    this.#absent.add(hash);
    for (const oldest of this.#absent) {
      if (this.#absent.size <= absentMax) break;
      this.#absent.delete(oldest);
    }
  }

  /** Notes that there is a key with this hash. */
  noteKey(hash: string): void {
    this.#absent.delete(hash);
    const bytes = bytesOf(hash);
    this.#filter?.add(bytes);
    this.#next?.add(bytes);
  }

  /** Forgets everything, because it may be outdated. */
  forget(): void {
    this.#absent.clear();
    this.#filter = undefined;
    this.#next = undefined;
  }

  /**
   * Sets a filter to be filled with the hashes of all keys, before the first of them is read. Keys noted meanwhile are added to it, too.
   */
  fill(next: KeyFilter): void {
    this.#next = next;
  }

  /** Called when the filter has all of them. false: the data was forgotten meanwhile, so another filter is needed. */
  filled(next: KeyFilter): boolean {
    if (this.#next !== next) return false;
    this.#filter = next;
    this.#next = undefined;
    return true;
  }
}

const bytesOf = (hash: string): Uint8Array => Buffer.from(hash, 'latin1');
