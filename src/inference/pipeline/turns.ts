/** Somebody who takes turns with others. */
export interface Turn {
  /** Its share beside that of the others. */
  readonly weight: number;
  /** The tokens that it has had, divided by its weight, beside those of the others: who has the least is next. */
  had: number;
}

/** The usual request is the mean of this many. */
const usualOf = 16;

/**
 * Turns by tokens: who has had the least is next (start-time fair queueing, Goyal et al. 1996), so two that wait never differ by more than one
 * request. Newcomers join as if they had had what a usual request takes: behind those who wait for their next turn. So the wait that they
 * cause is bounded by their number, not by how often they come.
 */
export class Turns<Of extends Turn> {
  /** Those who wait, by what they have had; of equals, the first to come. */
  readonly #order: Of[] = [];
  /** What the last one in turn had had before. */
  #level = 0;
  /** What a request usually takes, divided by the weight. */
  #usual = 0;

  get waiting(): readonly Of[] {
    return this.#order;
  }

  /** What it had before is remembered, as far as it is more than what the others have had meanwhile. */
  add(turn: Of): void {
    turn.had = Math.max(turn.had, this.#level + this.#usual);
    this.#insert(turn);
  }

  /** Removes one of which nothing waits any more. */
  remove(turn: Of): void {
    this.#order.splice(this.#order.indexOf(turn), 1);
  }

  /** Adds to what it has had. */
  charge(turn: Of, tokens: number): void {
    turn.had += tokens / turn.weight;
    const index = this.#order.indexOf(turn);
    if (index < 0) return;
    this.#order.splice(index, 1);
    this.#insert(turn);
  }

  /** Whether it would join as anybody: nothing of it need be remembered. */
  isForgotten({ had }: Of): boolean {
    return had <= this.#level + this.#usual;
  }

  /**
   * Calls `serve` with those whose turn it is, until it returns the tokens that it gave. Who can be given nothing now is passed over: it keeps
   * its turn, and saves none up. `undefined`: nobody can be given anything.
   */
  next(serve: (turn: Of) => number | undefined): number | undefined {
    const order = this.#order;
    let passedOver = 0;
    for (let turn = order[0]; turn !== undefined; turn = order[passedOver]) {
      const tokens = serve(turn);
      if (tokens !== undefined) {
        for (let at = 0; at < passedOver; at++) order[at]!.had = turn.had;
        this.#level = Math.max(this.#level, turn.had);
        this.#usual += (tokens / turn.weight - this.#usual) / (this.#usual === 0 ? 1 : usualOf);
        this.charge(turn, tokens);
        return tokens;
      }
      // It may have left meanwhile.
      if (order[passedOver] === turn) passedOver++;
    }
    return undefined;
  }

  #insert(turn: Of): void {
    const order = this.#order;
    let from = 0;
    let to = order.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (order[middle]!.had <= turn.had) from = middle + 1;
      else to = middle;
    }
    order.splice(from, 0, turn);
  }
}
