/**
 * A bounded queue that serves its sources in turn. A source may have as many items in it as there is room left: one alone gets half
 * of it, two a third each; so no source can fill it, and a new one always finds room.
 */
export class FairQueue<Item> {
  readonly #itemsMax: number;
  /** In the order of their turns. */
  readonly #sources = new Map<string, Item[]>();
  /** Before all others. */
  #first: Item[] = [];
  #size = 0;

  constructor(itemsMax: number) {
    this.#itemsMax = itemsMax;
  }

  get size(): number {
    return this.#size;
  }

  /** `false`: there is no room for this source. */
  add(source: string, item: Item): boolean {
    const own = this.#sources.get(source);
    if ((own?.length ?? 0) >= this.#itemsMax - this.#size) return false;
    if (own === undefined) this.#sources.set(source, [item]);
    else own.push(item);
    this.#size++;
    return true;
  }

  /** Puts an item back that was taken. */
  addFirst(item: Item): void {
    this.#first.push(item);
    this.#size++;
  }

  /** Takes some, one of each source at a time. */
  take(most: number): readonly Item[] {
    const taken = this.#first.splice(0, most);
    for (const [source, items] of this.#sources) {
      if (taken.length >= most) break;
      taken.push(items.shift()!);
      this.#sources.delete(source);
      // Its next turn comes after those of all others, in this round or the next.
      if (items.length > 0) this.#sources.set(source, items);
    }
    this.#size -= taken.length;
    return taken;
  }

  clear(): void {
    this.#sources.clear();
    this.#first = [];
    this.#size = 0;
  }
}
