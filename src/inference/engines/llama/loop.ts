import { setImmediate as nextTurn } from 'node:timers/promises';
import type { LlamaModel } from './llama-model.ts';
import { DecodeBatchTuner } from './decode-batch-tuner.ts';
import { BriefSteps } from './brief-steps.ts';
import type { Job, JobEnding } from './job.ts';
import { NextTokens, type SampledPlace, type ScoredPlace } from './next-tokens.ts';
import { PromptBatchTuner } from './prompt-batch-tuner.ts';
import { ReadingPace } from './reading-pace.ts';
import { report, runOf, type Run, type Slot } from './running-job.ts';
import { SlotChoice, type CacheUser } from './slots.ts';
import { inOrder, piecesOf } from './step-plan.ts';

/** What one step did, for tests and measurements. */
export interface Step {
  readonly decodedTokens: number;
  readonly prefilled: readonly { readonly job: Job; readonly tokens: number }[];
  readonly elapsedMs: number;
}

export interface LoopOptions {
  /** For steps that only write; `undefined`: one or all, whichever turns out to be faster. */
  readonly decodeThreads?: number | undefined;
  /** Maximum threads for steps that read prompts; fewer are used when faster. */
  readonly threadsMax: number;
  readonly observe?: (step: Step) => void;
  /** Tokens whose text readers do not see: none of them is chosen while a grammar holds. */
  readonly hiddenTokens?: readonly number[];
  /** Time limit for one token under a constraint, after which the answer ends: 2 s. */
  readonly constraintMsMax?: number;
  /** Called when several steps in a row failed: the context is unusable. */
  readonly broken?: () => void;
}

/**
 * The one owner of a model's context. Every step is one batch: a token of each answer that is being written, then a chunk of the prompts
 * that are being read, longest-waiting first; then one decode, and one sample for each answer. So answers continue while a long prompt is
 * read, and a cancelled job is gone after one step.
 *
 * What a token means (its text, stop sequences, marks) is worked out while the next step decodes, so it does not delay the answer. That
 * step's token for an answer that turns out to have ended is dropped.
 *
 * It does not limit its queue: the submitter does (the engine refuses on entry).
 */
export class Loop {
  readonly #model: LlamaModel;
  readonly #options: LoopOptions;
  readonly #caches: SlotChoice<Run>;
  readonly #nextTokens: NextTokens;
  readonly #queue: Job[] = [];
  readonly #backgroundTasks = new Map<number, Iterator<void>>();
  readonly #promptTuner: PromptBatchTuner;
  /** The best speed so far of reading prompts. */
  readonly #pace = new ReadingPace();
  readonly #decodeTuner: DecodeBatchTuner;
  readonly #briefSteps = new BriefSteps();
  #steps = 0;
  #failures = 0;
  #closed = false;
  #wake: (() => void) | undefined;
  readonly #ended: Promise<void>;

  constructor(model: LlamaModel, options: LoopOptions) {
    this.#model = model;
    this.#options = options;
    this.#caches = new SlotChoice(model.facts.slots);
    this.#nextTokens = new NextTokens(model, {
      constraintMsMax: options.constraintMsMax,
      broken: options.broken,
      end: (slot, ending) => this.#end(slot, ending),
    });
    this.#promptTuner = new PromptBatchTuner(options.threadsMax, model.facts.batchTokens);
    const { decodeThreads, threadsMax } = options;
    this.#decodeTuner = new DecodeBatchTuner(
      decodeThreads === undefined ? [...new Set([1, threadsMax])] : [decodeThreads],
      model.facts.slots,
    );
    this.#ended = this.#run();
  }

  submit(job: Job): void {
    this.#queue.push(job);
    this.wake();
  }

  /** Cancels a job, which ends as `cancelled` before the next step. */
  cancel(job: Job): void {
    const waiting = this.#queue.indexOf(job);
    if (waiting >= 0) {
      this.#queue.splice(waiting, 1);
      job.reader.ended({ type: 'cancelled' });
      return;
    }
    const run = this.#slots.find((slot) => slot.run?.job === job)?.run;
    if (run !== undefined) run.cancelled = true;
    this.wake();
  }

  /** Adds work in short pieces (rendering, tokenising) that shares the thread with the steps: one piece per step, while it decodes. */
  backgroundTask(key: number, work: Iterator<void>): void {
    this.#backgroundTasks.set(key, work);
    this.wake();
  }

  /** Drops work whose client has left, so that the amount of work is bounded by the waiting clients. */
  dropBackgroundTask(key: number): void {
    this.#backgroundTasks.delete(key);
  }

  /** Must be called when a reader takes more again. */
  wake(): void {
    this.#wake?.();
    this.#wake = undefined;
  }

  get #slots(): readonly Slot[] {
    return this.#caches.slots;
  }

  /** Returns how long a prompt may be, if these take longer than `ms` to read even at best, not counting tokens in the cache. */
  readableTokens(prompts: readonly CacheUser[], ms: number): number | undefined {
    const leastMs = (job: CacheUser): number => this.#pace.leastMs(this.#caches.cachedFor(job), job.prompt.length);
    if (prompts.reduce((sum, job) => sum + leastMs(job), 0) <= ms) return undefined;
    return this.#pace.tokensWithin(ms, this.#model.facts.contextLength);
  }

  /** Number of jobs in a slot or waiting for one. */
  get working(): number {
    return this.#queue.length + this.#slots.filter((slot) => slot.run !== undefined).length;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.wake();
    await this.#ended;
  }

  async #run(): Promise<void> {
    while (!this.#closed) {
      for (const slot of this.#slots) if (slot.run?.cancelled === true) this.#end(slot, { type: 'cancelled' });
      this.#fillSlots();
      const plan = this.#plan();
      const isStep = plan.items.length > 0;
      if (isStep) await this.#step(plan);
      else if (this.#notifyReaders()) this.#endReported();
      else if (this.#backgroundTasks.size > 0) this.#runBackgroundTask();
      else {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      // Lets messages in: a step of a tiny model may end without ever waiting for I/O, and a step on this thread always does.
      this.#steps++;
      if (!isStep || this.#steps % 8 === 0 || this.#briefSteps.isDue) {
        await nextTurn();
        this.#briefSteps.letIn();
      }
    }
    for (const slot of this.#slots) if (slot.run !== undefined) this.#end(slot, { type: 'cancelled' });
    for (const job of this.#queue.splice(0)) job.reader.ended({ type: 'cancelled' });
  }

  #runBackgroundTask(): boolean {
    for (const [key, work] of this.#backgroundTasks) {
      this.#backgroundTasks.delete(key);
      // Behind the others: a long task must not make them wait.
      if (work.next().done !== true) this.#backgroundTasks.set(key, work);
      return true;
    }
    return false;
  }

  /**
   * Plans a step: answers first, one token each; then prompts, as many tokens as a chunk has, longest-waiting first. With answers only, as
   * many as are fastest together, longest-waiting first.
   */
  #plan(): Plan {
    const waiting = this.#slots
      .flatMap((slot) => (slot.run?.job.reader.takesMore === true ? [{ slot, run: slot.run }] : []))
      .sort((a, b) => a.slot.lastStep - b.slot.lastStep);
    const writing = waiting.filter(({ run }) => run.next !== undefined).map((place) => ({ ...place, tokens: 1 }));
    if (writing.length === waiting.length) {
      if (writing.length === 0) return { items: [], threads: 1, expectedMs: 0 };
      const { width, threads, stepMs } = this.#decodeTuner.next(writing.length);
      return { items: inOrder(writing.slice(0, width)), threads, expectedMs: stepMs };
    }
    const reading = waiting.filter(({ run }) => run.next === undefined);
    // A new prompt waits for one step of each before it, so those steps are kept small.
    const hasNew = reading.length > 1 && reading.some(({ slot, run }) => slot.tokens.length === run.cachedTokens);
    const isUrgent = writing.length > 0 || this.#backgroundTasks.size > 0 || hasNew;
    const batch = this.#promptTuner.next({
      waits: isUrgent ? 'somebody' : reading.length > 1 ? 'prompts' : 'nobody',
      depth: reading[0]?.slot.tokens.length ?? 0,
    });
    const pieces = piecesOf(reading, {
      tokens: batch.tokens,
      tokensMax: this.#model.facts.batchTokens - writing.length,
      writers: writing.map(({ slot }) => slot.index),
    });
    const items = [...writing, ...pieces];
    const total = items.reduce((sum, { tokens }) => sum + tokens, 0);
    return { items: inOrder(items), threads: batch.threads, expectedMs: batch.expectedMs(total) };
  }

  /** Starts jobs: first come, first served within an account. */
  #fillSlots(): void {
    while (this.#queue.length > 0 && this.#slots.some(({ run }) => run === undefined)) {
      const job = this.#takeFromQueue();
      const place = job && this.#caches.choose(job);
      if (job === undefined || place === undefined) return;
      this.#start(place.slot, job, place.shared);
    }
  }

  /** Takes the oldest job of the account with the fewest slots, so that an account with a hundred answers does not hold up the others. */
  #takeFromQueue(): Job | undefined {
    const held = (job: Job) => this.#slots.filter(({ run }) => run?.job.cacheScope === job.cacheScope).length;
    let next: { readonly index: number; readonly held: number } | undefined;
    for (const [index, job] of this.#queue.entries()) {
      if (this.#waitsForPrompt(job)) continue;
      const slots = held(job);
      if (next === undefined || slots < next.held) next = { index, held: slots };
    }
    return next === undefined ? undefined : this.#queue.splice(next.index, 1)[0];
  }

  /**
   * Returns whether a job should wait to reuse a slot's prompt. Several answers to a long prompt take turns in one slot, where the prompt
   * is read once, if reading it again for each would take longer than writing them together saves (a third, on two cores; a prompt token
   * costs a fifth).
   */
  #waitsForPrompt({ group, prompt, maxTokens, retain }: Job): boolean {
    if (group === undefined || !retain || prompt.length < 3 * Math.min(maxTokens, expectedTokens)) return false;
    return this.#slots.some(({ run }) => run?.job.group === group && run.job.prompt === prompt);
  }

  #start(slot: Slot, job: Job, shared: number): void {
    const kept = slot.tokens.length === shared ? shared : this.#model.truncate(slot.index, shared);
    this.#caches.shorten(slot, kept);
    slot.scope = job.cacheScope;
    // Behind slots of the previous step, and ahead of those in the next.
    slot.lastStep = this.#steps - 1;
    slot.run = runOf(job, kept, this.#model, this.#options.hiddenTokens);
    job.reader.started(kept);
    if (job.maxTokens <= 0 && job.scoresPrompt !== true) this.#end(slot, { type: 'length', cause: 'max-tokens' });
  }

  async #step({ items: plan, threads, expectedMs }: Plan): Promise<void> {
    const started = performance.now();
    const sampled: SampledPlace[] = [];
    const scored: ScoredPlace[] = [];
    let decoded = 0;
    let total = 0;
    let prefilled = 0;
    for (const item of plan) total += item.tokens;
    try {
      this.#model.beginBatch(total);
      for (const { slot, run, tokens } of plan) {
        const position = slot.tokens.length;
        const ids = run.next === undefined ? run.job.prompt.slice(position, position + tokens) : [run.next];
        const completes = run.next !== undefined || position + ids.length === run.job.prompt.length;
        let logits: number | undefined;
        if (run.next === undefined && run.job.scoresPrompt === true) {
          const each = this.#model.addScoredToBatch(slot.index, position, Uint32Array.from(ids));
          scored.push({ slot, run, position, logits: each });
          logits = completes ? each.at(-1) : undefined;
        } else logits = this.#model.addToBatch(slot.index, position, Uint32Array.from(ids), completes);
        if (logits !== undefined && run.job.maxTokens > 0) sampled.push({ slot, run, logits });
        if (run.next === undefined) prefilled += ids.length;
        else decoded++;
        for (const id of ids) slot.tokens.push(id);
        slot.lastStep = this.#steps;
      }
      let disturbed = false;
      const hereMs = this.#briefSteps.msFor(expectedMs);
      if (hereMs > 0) {
        this.#notifyReaders();
        disturbed = this.#runBackgroundTask();
        const elsewhere = this.#model.decode(threads, hereMs);
        if (elsewhere !== undefined) this.#briefSteps.gaveUp();
        await elsewhere;
      } else {
        const decoding = this.#model.decode(threads);
        try {
          this.#notifyReaders();
          disturbed = this.#runBackgroundTask();
        } finally {
          // Even on failure: the context must not be touched while it decodes.
          await decoding;
        }
      }
      const elapsedMs = performance.now() - started;
      if (!disturbed) {
        if (prefilled > 0) this.#observeReading(plan, { threads, tokens: total }, elapsedMs);
        else this.#decodeTuner.observe(threads, decoded, elapsedMs);
      }
      for (const { run } of plan) if (run.next === undefined) run.job.reader.reads?.();
      this.#options.observe?.({
        decodedTokens: decoded,
        prefilled: plan
          .filter(({ run }) => run.next === undefined)
          .map(({ run, tokens }) => ({ job: run.job, tokens })),
        elapsedMs,
      });
      this.#endReported();
      for (const place of scored) await this.#nextTokens.score(place);
      await this.#nextTokens.choose(sampled.filter(({ slot, run }) => slot.run === run && !run.cancelled));
      this.#failures = 0;
    } catch (error) {
      // Which item of the batch failed, and what the context holds now, is unknown.
      const detail = error instanceof Error ? error.message : 'the step failed';
      for (const { slot } of plan) {
        this.#forget(slot);
        this.#end(slot, { type: 'failed', detail });
      }
      this.#failures++;
      if (this.#failures >= failuresMax) this.#options.broken?.();
    }
  }

  #observeReading(
    plan: readonly PlannedItem[],
    step: { readonly threads: number; readonly tokens: number },
    elapsedMs: number,
  ): void {
    const [first, ...others] = plan.filter(({ run }) => run.next === undefined);
    if (first === undefined) return;
    const depth = first.slot.tokens.length - first.tokens;
    this.#promptTuner.observe({ ...step, depth }, elapsedMs);
    // Computing probabilities of a prompt's tokens takes additional time.
    if (others.length === 0 && first.tokens === step.tokens && first.run.job.scoresPrompt !== true)
      this.#pace.observe(depth, first.tokens, elapsedMs);
  }

  /** Reports new tokens to their readers; returns whether there were any. */
  #notifyReaders(): boolean {
    let reported = false;
    for (const { run } of this.#slots) {
      if (run?.unreported === undefined || run.cancelled || !run.job.reader.takesMore) continue;
      report(run);
      reported = true;
    }
    return reported;
  }

  #endReported(): void {
    for (const slot of this.#slots) if (slot.run?.ending !== undefined) this.#end(slot, slot.run.ending);
  }

  #end(slot: Slot, ending: JobEnding): void {
    const run = slot.run;
    if (run === undefined) return;
    // The last token may complete a stop sequence.
    const isWhole = ending.type === 'stop' || ending.type === 'length';
    if (isWhole) report(run);
    run.sampler.dispose();
    run.logprobs?.dispose();
    if (!run.job.retain) this.#forget(slot);
    this.#caches.free(slot);
    run.job.reader.ended(isWhole ? (run.ending ?? ending) : ending);
  }

  #forget(slot: Slot): void {
    this.#model.truncate(slot.index, 0);
    slot.tokens.fill(0);
    slot.tokens.length = 0;
    slot.scope = '';
  }
}

const failuresMax = 3;
/** The assumed length of an answer if it is unknown. */
const expectedTokens = 256;

interface Plan {
  readonly items: readonly PlannedItem[];
  readonly threads: number;
  /** Infinite if unknown. */
  readonly expectedMs: number;
}

interface PlannedItem {
  readonly slot: Slot;
  readonly run: Run;
  readonly tokens: number;
}
