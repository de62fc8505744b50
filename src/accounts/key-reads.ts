/** Maximum changes remembered for reads in progress; beyond that all of these reads are outdated. */
const changesMax = 10_000;

/** Marks, in the sequence of changes, where a read of the database began. */
export interface KeyRead {
  readonly since: number;
}

/**
 * Tracks which database reads are outdated when they end, because a change has taken effect since they began: their results may predate the
 * change, and must not overwrite newer data. Subjects are ids of keys and accounts, and hashes.
 */
export class KeyReads {
  readonly #underWay = new Set<KeyRead>();
  readonly #changedAt = new Map<string, number>();
  #changes = 0;
  #allChangedAt = 0;

  begin(): KeyRead {
    const read = { since: this.#changes };
    this.#underWay.add(read);
    return read;
  }

  end(read: KeyRead): void {
    this.#underWay.delete(read);
    if (this.#underWay.size === 0) this.#changedAt.clear();
  }

  changed(subject: string): void {
    if (this.#underWay.size === 0) return;
    if (this.#changedAt.size >= changesMax) this.allChanged();
    this.#changedAt.set(subject, ++this.#changes);
  }

  allChanged(): void {
    this.#changedAt.clear();
    this.#allChangedAt = ++this.#changes;
  }

  isOutdated({ since }: KeyRead, ...subjects: readonly string[]): boolean {
    return this.#allChangedAt > since || subjects.some((subject) => (this.#changedAt.get(subject) ?? 0) > since);
  }
}
