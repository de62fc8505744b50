import type { GenerationEvent, UsageReport } from '../../../../generation/event.ts';
import type { UsageTally } from '../../usage-tally.ts';
import { reportedUsage } from '../reported-usage.ts';
import type { JsonObject } from './json.ts';
import type { DecoderOptions } from './options.ts';

/** Finds an answer's usage in its chunks, and makes usage events of what the tally accepts. */
export class UsageReader {
  readonly #tally: UsageTally;
  readonly #closing: DecoderOptions['closingUsage'];
  readonly #reasoningForm: DecoderOptions['reasoningForm'];
  /** Whether a choice has finished and has no usage yet. */
  readonly #awaited: boolean[];

  constructor({
    tally,
    closingUsage,
    reasoningForm,
    choices,
  }: Pick<DecoderOptions, 'tally' | 'closingUsage' | 'reasoningForm' | 'choices'>) {
    this.#tally = tally;
    // With a single choice, its usage is the request's, wherever it appears.
    this.#closing = choices === 1 ? 'total' : closingUsage;
    this.#reasoningForm = reasoningForm;
    this.#awaited = new Array<boolean>(choices).fill(false);
  }

  /** Reads usage for the prompt before the first text, which emits `start` with it. `first`: the choice next to it, if any. */
  beforeText(first: number | undefined, usage: JsonObject): void {
    const raw = reportedUsage(usage);
    if (first !== undefined) this.#tally.prompt(first, raw.promptTokens, raw.cachedTokens);
    else if (this.#closing === 'total') this.#tally.reportTotal({ ...raw, completionTokens: undefined });
  }

  /**
   * Reads usage; returns whether it was used. `only`: the choice next to it, which it counts alone. `count`: the number of choices next to
   * it.
   */
  read(only: number | undefined, count: number, usage: JsonObject): boolean {
    const raw = reportedUsage(usage);
    if (only !== undefined) this.#tally.reportChoice(only, raw);
    else if (this.#closing === 'per-choice' && count === 0) {
      const ended = this.#awaited.indexOf(true);
      if (ended === -1) return false;
      this.#awaited[ended] = false;
      this.#tally.reportChoice(ended, raw);
    } else {
      this.#awaited.fill(false);
      this.#tally.reportTotal(raw);
    }
    return true;
  }

  finished(choice: number): void {
    this.#awaited[choice] = true;
  }

  /** Whether every finished choice has its usage. */
  get isSettled(): boolean {
    return !this.#awaited.includes(true);
  }

  /** Returns the current usage if it has changed. */
  news(): GenerationEvent | undefined {
    if (!this.#tally.takeNews()) return undefined;
    // I5: figures that are not the backend's own are marked.
    const isCounted = !this.#tally.isReported || this.#tally.isDoubted;
    return { type: 'usage', usage: this.#usage(), ...(isCounted ? { counted: true } : {}) };
  }

  /** Returns the usage; §4.2.5(4): hidden reasoning counts as tokens of the answer and is not otherwise visible. */
  #usage(): UsageReport {
    const usage = this.#tally.usage();
    return this.#reasoningForm === 'hidden' ? { ...usage, reasoningTokens: 0 } : usage;
  }
}
