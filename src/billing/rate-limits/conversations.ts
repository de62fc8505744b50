import { dollars } from '../../platform/dollars.ts';
import { ApiError } from '../../platform/errors.ts';
import { microcentsPerCent } from './rates.ts';

/** A prompt that a conversation has had, and what it had cost up to its answer. */
interface Turn {
  spentMicrocents: number;
  /** What its running requests are likely to cost. */
  heldMicrocents: number;
}

/** A request of a conversation, which ends once. */
export interface OpenTurn {
  end(costMicrocents: number): void;
}

/** Turns in memory; each takes some 100 bytes. */
const turnsMax = 100_000;

/**
 * What conversations have cost. A request continues the conversation whose prompt its own begins with, the longest one; the same prompt
 * again is the same conversation, but for one without an answer, with which another begins. So what two have in common counts for both, and
 * what each has beyond it for itself alone: agents that begin alike are never stopped for each other. Known to this process alone, for as
 * long as memory lasts: the conversations that were longest without a request are forgotten first.
 */
export class Conversations {
  /** In order of use, by the hash of the prompt. */
  readonly #turns = new Map<number, Turn>();

  /** Number of prompts in memory. */
  get size(): number {
    return this.#turns.size;
  }

  /**
   * Begins a request with these turns: a hash of its prompt up to its first answer and to each later message, the whole prompt last. Throws
   * `insufficient_credits` 402 when its conversation has nothing left. Like a limit of spending, the last request takes what is left.
   */
  begin(turns: readonly number[], budgetCents: number, likelyMicrocents: number): OpenTurn {
    const prompt = turns.at(-1);
    if (prompt === undefined) return apart;
    const budget = budgetCents * microcentsPerCent;
    if (turns.length === 1) return this.#open(prompt);
    const turn = this.#turns.get(prompt) ?? { spentMicrocents: this.#spentBefore(turns), heldMicrocents: 0 };
    const left = budget - turn.spentMicrocents - turn.heldMicrocents;
    if (left <= 0) throw spentUp(turn.spentMicrocents, budgetCents);
    const held = Math.min(left, likelyMicrocents);
    turn.heldMicrocents += held;
    this.#use(prompt, turn);
    return {
      end: (costMicrocents) => {
        turn.heldMicrocents -= held;
        turn.spentMicrocents += costMicrocents;
      },
    };
  }

  /** Many conversations may begin with the same prompt: each has cost what the cheapest of them has. */
  #open(prompt: number): OpenTurn {
    const turn = this.#turns.get(prompt) ?? { spentMicrocents: Infinity, heldMicrocents: 0 };
    this.#use(prompt, turn);
    return {
      end: (costMicrocents) => {
        if (costMicrocents > 0) turn.spentMicrocents = Math.min(turn.spentMicrocents, costMicrocents);
      },
    };
  }

  #spentBefore(turns: readonly number[]): number {
    for (let index = turns.length - 2; index >= 0; index--) {
      const known = this.#turns.get(turns[index]!);
      if (known !== undefined) return Number.isFinite(known.spentMicrocents) ? known.spentMicrocents : 0;
    }
    return 0;
  }

  #use(prompt: number, turn: Turn): void {
    this.#turns.delete(prompt);
    this.#turns.set(prompt, turn);
    if (this.#turns.size <= turnsMax) return;
    const [oldest] = this.#turns.keys();
    this.#turns.delete(oldest!);
  }
}

/** A request that belongs to no conversation: nothing under zero data retention is kept, and a text or token ids are not one. */
const apart: OpenTurn = { end: () => {} };

/** Agents show the message to people. */
function spentUp(spentMicrocents: number, budgetCents: number): ApiError {
  const budget = dollars(BigInt(budgetCents * microcentsPerCent));
  return new ApiError(
    'insufficient_credits',
    `This conversation has cost ${dollars(BigInt(spentMicrocents))}, and its key allows ${budget} for one. Begin a new conversation, or ` +
      'have session_budget_cents of the key raised. If that is a surprise, look whether the program repeats itself.',
    { extra: { credits_available_cents: 0, budget_of: 'conversation', budget_limit_cents: budgetCents } },
  );
}
