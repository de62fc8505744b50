/**
 * Detects that a model has begun repeating itself (§2.5, `length`): the same 20 tokens for the fifth time. Overlapping ones are counted
 * once, so 40 equal table cells are not a loop, and the shortest loop ends after a hundred tokens.
 */
export class RepetitionGuard {
  readonly #recent: number[] = [];
  readonly #seen = new Map<string, { times: number; at: number }>();
  #tokens = 0;

  /** Takes the next token; returns `true` if the answer must end here. */
  push(id: number): boolean {
    this.#tokens++;
    this.#recent.push(id);
    if (this.#recent.length < gramTokens) return false;
    if (this.#recent.length > gramTokens) this.#recent.shift();
    const gram = this.#recent.join();
    const seen = this.#seen.get(gram);
    if (seen === undefined) {
      this.#seen.set(gram, { times: 1, at: this.#tokens });
      return false;
    }
    if (this.#tokens - seen.at >= gramTokens) {
      seen.times++;
      seen.at = this.#tokens;
    }
    return seen.times >= timesMax;
  }
}

export const gramTokens = 20;
const timesMax = 5;
