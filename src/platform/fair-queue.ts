/**
 * A bounded queue that serves its sources in turn. A source may have as many items in it as there is room left: one alone gets half
 * the queue, two a third each, so no source can fill it and a new one always finds room.
 */
export class FairQueue<Item> {
  readonly #itemsMax: number;
  /** In the order of their turns. */
  readonly #sources = new Map<string, Item[]>();
  /** Items that come before all others. */
  #first: Item[] = [];
  #size = 0;

  constructor(itemsMax: number) {
    this.#itemsMax = itemsMax;
  }

  get size(): number {
    return this.#size;
  }

  /** Returns false if there is no room for this source. */
  add(source: string, item: Item): boolean {
    const own = this.#sources.get(source);
    if ((own?.length ?? 0) >= this.#itemsMax - this.#size) return false;
    if (own === undefined) this.#sources.set(source, [item]);
    else own.push(item);
    this.#size++;
    return true;
  }

  /** Puts back an item that was taken. */
  addFirst(item: Item): void {
    this.#first.push(item);
    this.#size++;
  }

  /** Takes up to `most` items, one from each source in turn. */
  take(most: number): readonly Item[] {
    const taken: Item[] = [];
    while (taken.length < most) {
      const item = this.next();
      if (item === undefined) break;
      taken.push(item);
    }
    return taken;
  }

  /** Takes one from the first source in turn that may have one now; undefined if there is none. */
  next(mayHave: (source: string) => boolean = anySource): Item | undefined {
    const first = this.#first.shift();
    if (first !== undefined) {
      this.#size--;
      return first;
    }
    for (const [source, items] of this.#sources) {
      if (!mayHave(source)) continue;
      const item = items.shift()!;
      this.#size--;
      this.#sources.delete(source);
      // Its next turn comes after those of all others.
      if (items.length > 0) this.#sources.set(source, items);
      return item;
    }
    return undefined;
  }

  /** Removes this item out of turn. */
  remove(source: string, item: Item): void {
    const items = this.#sources.get(source);
    const index = items?.indexOf(item) ?? -1;
    if (items === undefined || index < 0) return;
    items.splice(index, 1);
    this.#size--;
    if (items.length === 0) this.#sources.delete(source);
  }

  clear(): void {
    this.#sources.clear();
    this.#first = [];
    this.#size = 0;
  }
}

const anySource = (): boolean => true;
