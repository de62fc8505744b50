import { ConstrainedText, lettersOf, type Letters } from './constrained-text.ts';
import type { JobEnding, MadeToken } from './job.ts';
import type { LlamaModel, TokenLogprobs } from './llama-model.ts';
import { gramTokens } from './repetition.ts';
import { report, type Run, type Slot } from './running-job.ts';

/** Determines the next token of each answer after a step, and whether the answer ends with it or without it. */
export class NextTokens {
  readonly #model: LlamaModel;
  readonly #options: NextTokensOptions;
  /** Read when an answer first repeats itself under a constraint. */
  #letters: Letters | undefined;

  constructor(model: LlamaModel, options: NextTokensOptions) {
    this.#model = model;
    this.#options = options;
  }

  /** Determines the next token of each answer: the forced one, or else the sampler's choice. */
  async choose(places: readonly SampledPlace[]): Promise<void> {
    const forced: SampledPlace[] = [];
    const free: SampledPlace[] = [];
    for (const place of places) {
      const { slot, run } = place;
      if (run.forced.length > 0) forced.push(place);
      else if (run.constrainFrom === undefined || this.#constrain(run, run.constrainFrom)) free.push(place);
      else this.#endStuck(slot, run);
    }
    for (const { slot, run } of forced) {
      const id = run.forced.shift() ?? -1;
      if (run.sampler.follow(id)) this.#take(slot, run, { id, logprobs: undefined });
      else this.#endStuck(slot, run);
    }
    if (free.length === 0) return;
    const ids = await this.#sample(free);
    const logprobs = await this.#logprobsOf(free, ids);
    for (const [index, { slot, run }] of free.entries()) {
      if (slot.run === run && !run.cancelled) this.#takeSampled(slot, run, ids[index] ?? -1, logprobs?.[index]);
    }
  }

  /** Reports the tokens that follow those of a prompt's chunk to the reader. */
  async score({ slot, run, position, logits }: ScoredPlace): Promise<void> {
    const { prompt, reader, maxTokens } = run.job;
    const [first] = logits;
    if (run.logprobs === undefined || first === undefined) return;
    await this.#model.settle(first, run.logprobs);
    for (const [index, place] of logits.entries()) {
      const id = prompt[position + index + 1];
      if (slot.run !== run || run.cancelled) return;
      if (id !== undefined) reader.scored?.(await this.#model.logprobs(place, run.logprobs, id));
    }
    const isRead = position + logits.length === prompt.length;
    if (isRead && maxTokens <= 0 && slot.run === run) this.#options.end(slot, { type: 'length', cause: 'max-tokens' });
  }

  /** Returns the logprobs; `undefined` if they were not requested. */
  async #logprobsOf(
    places: readonly SampledPlace[],
    ids: readonly number[],
  ): Promise<readonly (TokenLogprobs | undefined)[] | undefined> {
    if (places.every(({ run }) => run.logprobs === undefined)) return undefined;
    return Promise.all(
      places.map(async ({ run, logits }, index) => {
        const id = ids[index] ?? -1;
        return run.logprobs === undefined || id < 0 ? undefined : await this.#model.logprobs(logits, run.logprobs, id);
      }),
    );
  }

  /**
   * Samples the next tokens. A constraint that branches without end can keep llama.cpp busy for minutes with one token, which nothing can
   * interrupt: the time doubles with every character. The answer is ended when it gets slow; the child, when a single token is stuck.
   */
  async #sample(places: readonly SampledPlace[]): Promise<readonly number[]> {
    const wanted = places.map(({ run, logits }) => ({ logits, sampler: run.sampler.sampler }));
    if (!places.some(({ run }) => run.sampler.isConstrained)) return this.#model.sample(wanted);
    const startedMs = performance.now();
    const tookMs: number[] = [];
    const stuck = setTimeout(() => this.#options.broken?.(), stuckMs);
    try {
      return await this.#model.sample(wanted, (index) => (tookMs[index] = performance.now() - startedMs));
    } finally {
      clearTimeout(stuck);
      for (const [index, { slot, run }] of places.entries()) {
        const isSlow = (tookMs[index] ?? 0) > (this.#options.constraintMsMax ?? constraintMsMax);
        if (isSlow && run.sampler.isConstrained && slot.run === run) this.#options.end(slot, { type: 'too-slow' });
      }
    }
  }

  /** Makes the constraint hold from here on; `false` if the text so far does not fit it. */
  #constrain(run: Run, said: string): boolean {
    run.constrainFrom = undefined;
    const grammar = run.job.constraint?.grammar;
    if (grammar === undefined) return true;
    run.sampler.constrain(grammar.begin());
    const ids = [...this.#model.tokenize(said, false)];
    run.constrained = new ConstrainedText(grammar, () => (this.#letters ??= lettersOf(this.#model)), ids);
    return ids.every((id) => run.sampler.follow(id));
  }

  /** Ends an answer that no token can follow: a text that satisfies its constraint has ended, any other was cut off. */
  #endStuck(slot: Slot, run: Run): void {
    if (!run.sampler.isLimited) this.#options.end(slot, { type: 'failed', detail: 'no token fits' });
    else if (run.sampler.isComplete(this.#model.facts.eos)) this.#options.end(slot, { type: 'stop' });
    else this.#options.end(slot, { type: 'length', cause: 'constraint' });
  }

  #takeSampled(slot: Slot, run: Run, id: number, logprobs: TokenLogprobs | undefined): void {
    const isEnd = id >= 0 && this.#model.isEndOfGeneration(id);
    if (run.sampler.judge(id, isEnd) === 'forbidden') return this.#endStuck(slot, run);
    const { stopTokens } = run.job;
    if (stopTokens?.ids.includes(id) === true) {
      if (stopTokens.included) run.ending = { type: 'stop', stopTokenId: id };
      else return this.#options.end(slot, { type: 'stop', stopTokenId: id });
      return this.#take(slot, run, { id, logprobs });
    }
    if (!isEnd) return this.#take(slot, run, { id, logprobs });
    const [instead, ...rest] = run.job.reader.insteadOfEnd?.() ?? [];
    if (instead === undefined) return this.#options.end(slot, { type: 'stop' });
    run.forced.push(...rest);
    this.#take(slot, run, { id: instead, logprobs: undefined });
  }

  #take(slot: Slot, run: Run, token: MadeToken): void {
    const { id } = token;
    run.next = id;
    run.generated++;
    run.sampler.accept(id);
    run.unreported = token;
    const { reader } = run.job;
    // Whether a token counts is known only once its text is.
    if (reader.tokensBeyond !== undefined && run.generated >= run.job.maxTokens) report(run);
    if (run.ending !== undefined) this.#options.end(slot, run.ending);
    else if (run.generated - (reader.tokensBeyond ?? 0) >= run.job.maxTokens)
      this.#options.end(slot, { type: 'length', cause: 'max-tokens' });
    else if (run.job.prompt.length + run.generated >= this.#model.facts.contextLength)
      this.#options.end(slot, { type: 'length', cause: 'window' });
    else if (this.#repeatsItself(run, id)) this.#options.end(slot, { type: 'length', cause: 'repetition' });
  }

  /** Returns whether an answer repeats itself. Repeating what the constraint requires is not a loop. */
  #repeatsItself(run: Run, id: number): boolean {
    run.constrained?.push(id);
    return run.guard.push(id) && run.constrained?.hadChoice(gramTokens) !== false;
  }
}

const constraintMsMax = 2000;
const stuckMs = 20_000;

export interface NextTokensOptions {
  /** Time limit for one token under a constraint, after which the answer ends: 2 s. */
  readonly constraintMsMax: number | undefined;
  /** Called when a single token is stuck: the context is unusable. */
  readonly broken: (() => void) | undefined;
  /** Ends an answer and frees its slot. */
  readonly end: (slot: Slot, ending: JobEnding) => void;
}

export interface SampledPlace {
  readonly slot: Slot;
  readonly run: Run;
  readonly logits: number;
}

/** A chunk of a prompt, and where the logits after each of its tokens are. */
export interface ScoredPlace {
  readonly slot: Slot;
  readonly run: Run;
  readonly position: number;
  readonly logits: readonly number[];
}
