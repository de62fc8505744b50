/** Notices that a model has begun repeating itself (§2.5, `length`): the same 20 tokens in a row for the fifth time. */
export class RepetitionGuard {
  readonly #recent: number[] = [];
  readonly #seen = new Map<string, number>();

  /** Takes the next token; true when the answer is to end here. */
  push(id: number): boolean {
    this.#recent.push(id);
    if (this.#recent.length < gramLength) return false;
    if (this.#recent.length > gramLength) this.#recent.shift();
    const gram = this.#recent.join();
    const times = (this.#seen.get(gram) ?? 0) + 1;
    this.#seen.set(gram, times);
    return times >= timesMax;
  }
}

const gramLength = 20;
const timesMax = 5;
