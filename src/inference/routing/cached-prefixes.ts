/** A prompt prefix that is believed to be in a backend's cache. */
export interface CachedPrefix {
  readonly hash: number;
  /** Tokens beyond the next shorter prefix. */
  readonly tokens: number;
  /** Grows with each use, across the backends of a model. */
  usedAt: number;
}

interface Entry extends CachedPrefix {
  older: Entry;
  newer: Entry;
}

/** The prefixes of one backend, least recently used first: a ring, because moving a key to the end of a Map costs three times as much. */
export class CachedPrefixes {
  readonly #byHash = new Map<number, Entry>();
  /** The ring's sentinel, between the newest and the oldest. */
  readonly #ends: Entry;

  constructor() {
    const ends = { hash: 0, tokens: 0, usedAt: 0 } as Entry;
    ends.older = ends;
    ends.newer = ends;
    this.#ends = ends;
  }

  get oldest(): CachedPrefix | undefined {
    const { newer } = this.#ends;
    return newer === this.#ends ? undefined : newer;
  }

  get(hash: number): CachedPrefix | undefined {
    return this.#byHash.get(hash);
  }

  /** Marks an entry as used. Returns when it was last used before; 0: it is not there, and is not added. */
  use(hash: number, usedAt: number): number {
    const entry = this.#byHash.get(hash);
    if (entry === undefined) return 0;
    const before = entry.usedAt;
    entry.usedAt = usedAt;
    unlink(entry);
    this.#append(entry);
    return before;
  }

  /** Adds an entry as the newest. It must not be there yet. */
  add({ hash, tokens, usedAt }: CachedPrefix): void {
    const newer = this.#ends;
    const { older } = newer;
    const entry: Entry = { hash, tokens, usedAt, older, newer };
    older.newer = entry;
    newer.older = entry;
    this.#byHash.set(hash, entry);
  }

  /** Removes an entry, which must be there. */
  remove(hash: number): CachedPrefix {
    const entry = this.#byHash.get(hash)!;
    this.#byHash.delete(hash);
    unlink(entry);
    return entry;
  }

  #append(entry: Entry): void {
    const ends = this.#ends;
    entry.newer = ends;
    entry.older = ends.older;
    ends.older.newer = entry;
    ends.older = entry;
  }
}

function unlink(entry: Entry): void {
  entry.older.newer = entry.newer;
  entry.newer.older = entry.older;
}
