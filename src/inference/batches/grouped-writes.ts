import { deferred, type Deferred } from '../../platform/deferred.ts';

interface Waiting<Item, Outcome> extends Deferred<Outcome> {
  readonly item: Item;
}

/** Most items of one write, which settlements may have to wait for. */
const writtenAtOnce = 100;

/** One write at a time: items that arrive meanwhile share the next one, because each write costs a disk sync. */
export class GroupedWrites<Item, Outcome> {
  readonly #write: (items: readonly Item[]) => Promise<readonly Outcome[]>;
  #waiting: Waiting<Item, Outcome>[] = [];
  #isWriting = false;

  /** `write` returns an outcome for each item, in their order. */
  constructor(write: (items: readonly Item[]) => Promise<readonly Outcome[]>) {
    this.#write = write;
  }

  /** Resolves when the item is durable; rejects if its write failed. */
  add(item: Item): Promise<Outcome> {
    const waiting = { item, ...deferred<Outcome>() };
    this.#waiting.push(waiting);
    if (!this.#isWriting) void this.#writeAll();
    return waiting.promise;
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true;
    while (this.#waiting.length > 0) {
      const group = this.#waiting.splice(0, writtenAtOnce);
      try {
        const outcomes = await this.#write(group.map(({ item }) => item));
        for (const [index, { resolve }] of group.entries()) resolve(outcomes[index]!);
      } catch (error) {
        for (const { reject } of group) reject(error);
      }
    }
    this.#isWriting = false;
  }
}
