/** Changes that are remembered for the reads under way; beyond that all of these are outdated. */
const changesMax = 10_000;

/** When a read of the database began, among the changes. */
export interface KeyRead {
  readonly since: number;
}

/**
 * Which reads of the database are out of date when they end, because a change has come into force since they began: what they have
 * read may be from before it, and must not replace what is after it. Subjects are ids of keys and accounts, and hashes.
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
