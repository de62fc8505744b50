import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FinishCause } from '../../generation/event.ts';
import type { LlamaModel } from './bindings.ts';
import { Pace } from './pace.ts';
import { RepetitionGuard } from './repetition.ts';
import { ChoiceSampler, type SamplingSettings } from './sampling.ts';

/** One answer to one prompt. */
export interface Job {
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly sampling: SamplingSettings;
  /** A prefix in the cache is shared only between jobs of the same scope (reliability §3.5). */
  readonly cacheScope: string;
  /** false: takes nothing from the cache and leaves nothing in it. */
  readonly retain: boolean;
  readonly reader: JobReader;
}

/** Who is told of a job's progress. Calls come from the loop, one at a time. */
export interface JobReader {
  /** false while too much lies unread: the job is then passed over. */
  readonly takesMore: boolean;
  started(cachedTokens: number): void;
  /** A token of the answer; a string is the stop sequence that it completed. */
  token(id: number): string | undefined;
  ended(ending: JobEnding): void;
}

export type JobEnding =
  /** Without a stop sequence, the model itself ended. */
  | { readonly type: 'stop'; readonly stopSequence?: string }
  | { readonly type: 'length'; readonly cause: FinishCause }
  | { readonly type: 'cancelled' }
  /** `detail` is a sentence of ours or of llama.cpp, for the log; it holds no content. */
  | { readonly type: 'failed'; readonly detail: string };

/** What one step did, for tests and measurements. */
export interface Step {
  readonly decodedTokens: number;
  readonly prefilled: readonly { readonly job: Job; readonly tokens: number }[];
  readonly elapsedMs: number;
}

export interface LoopOptions {
  readonly decodeThreads: number;
  readonly prefillThreads: number;
  readonly observe?: (step: Step) => void;
  /** Several steps in a row failed: the context is of no use any more. */
  readonly broken?: () => void;
}

/**
 * The one owner of a model's context. Every step is one batch: a token of each answer that is being written, then a chunk of
 * the prompts that are being read, longest-waiting first; one decode; one sample for each answer. So answers go on while a long
 * prompt is read, and whatever is cancelled is gone after one step.
 *
 * It holds no queue limit of its own: whoever submits bounds how much (the engine refuses at its door).
 */
export class Loop {
  readonly #model: LlamaModel;
  readonly #options: LoopOptions;
  readonly #slots: Slot[];
  readonly #queue: Job[] = [];
  readonly #chores = new Map<number, () => void>();
  readonly #pace: Pace;
  #steps = 0;
  #failures = 0;
  #closed = false;
  #wake: (() => void) | undefined;
  readonly #ended: Promise<void>;

  constructor(model: LlamaModel, options: LoopOptions) {
    this.#model = model;
    this.#options = options;
    this.#slots = Array.from({ length: model.facts.slots }, (_, index) => ({
      index,
      tokens: [],
      scope: '',
      lastStep: 0,
      run: undefined,
    }));
    this.#pace = new Pace(options.prefillThreads, model.facts.batchTokens);
    this.#ended = this.#run();
  }

  submit(job: Job): void {
    this.#queue.push(job);
    this.wake();
  }

  /** The job ends as `cancelled` before the next step. */
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

  /** Short work (rendering, tokenising) that shares the thread with the steps: one piece a step, beside the decoding. */
  chore(key: number, work: () => void): void {
    this.#chores.set(key, work);
    this.wake();
  }

  /** Whoever waits for it has left: what waits is bounded by who waits. */
  dropChore(key: number): void {
    this.#chores.delete(key);
  }

  /** To be called when a reader takes more again. */
  wake(): void {
    this.#wake?.();
    this.#wake = undefined;
  }

  get idle(): boolean {
    return this.#queue.length === 0 && this.#chores.size === 0 && this.#slots.every((slot) => slot.run === undefined);
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
      const { tokens, threads } = this.#pace.next();
      const plan = planStep(this.#slots, tokens, this.#model.facts.batchTokens);
      if (plan.length > 0) await this.#step(plan, threads);
      else if (this.#chores.size > 0) this.#runChore();
      else {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      // Lets messages in: a step of a tiny model may end without ever waiting for the outside.
      this.#steps++;
      if (plan.length === 0 || this.#steps % 8 === 0) await nextTurn();
    }
    for (const slot of this.#slots) if (slot.run !== undefined) this.#end(slot, { type: 'cancelled' });
    for (const job of this.#queue.splice(0)) job.reader.ended({ type: 'cancelled' });
  }

  #runChore(): boolean {
    for (const [key, work] of this.#chores) {
      this.#chores.delete(key);
      work();
      return true;
    }
    return false;
  }

  /** First come, first served; a job takes the free slot that holds most of its prompt. */
  #fillSlots(): void {
    for (;;) {
      const free = this.#slots.filter((slot) => slot.run === undefined);
      const job = free.length === 0 ? undefined : this.#queue.shift();
      if (job === undefined) return;
      let best: { readonly slot: Slot; readonly shared: number; readonly worth: number } | undefined;
      for (const slot of free) {
        const shared = sharedTokens(slot, job);
        const worth = worthOf(shared, slot);
        if (best === undefined || worth > best.worth || (worth === best.worth && goesBefore(slot, best.slot)))
          best = { slot, shared, worth };
      }
      if (best !== undefined) this.#start(best.slot, job, best.shared);
    }
  }

  #start(slot: Slot, job: Job, shared: number): void {
    const kept = slot.tokens.length === shared ? shared : this.#model.truncate(slot.index, shared);
    slot.tokens.length = kept;
    slot.scope = job.cacheScope;
    slot.lastStep = this.#steps;
    const sampler = new ChoiceSampler(
      this.#model.createSampler(),
      job.sampling,
      job.prompt,
      this.#model.facts.contextLength,
    );
    slot.run = { job, sampler, guard: new RepetitionGuard(), next: undefined, generated: 0, cancelled: false };
    job.reader.started(kept);
    if (job.maxTokens <= 0) this.#end(slot, { type: 'length', cause: 'max-tokens' });
  }

  async #step(plan: readonly PlannedItem[], prefillThreads: number): Promise<void> {
    const started = performance.now();
    const sampled: { readonly slot: Slot; readonly run: Run; readonly logits: number }[] = [];
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
        const logits = this.#model.addToBatch(slot.index, position, Uint32Array.from(ids), completes);
        if (logits !== undefined) sampled.push({ slot, run, logits });
        if (run.next === undefined) prefilled += ids.length;
        else decoded++;
        for (const id of ids) slot.tokens.push(id);
        slot.lastStep = this.#steps;
      }
      const decoding = this.#model.decode(prefilled === 0 ? this.#options.decodeThreads : prefillThreads);
      const disturbed = this.#runChore();
      await decoding;
      const elapsedMs = performance.now() - started;
      if (prefilled > 0 && !disturbed) this.#pace.observe(prefillThreads, total, elapsedMs);
      this.#options.observe?.({
        decodedTokens: decoded,
        prefilled: plan
          .filter(({ run }) => run.next === undefined)
          .map(({ run, tokens }) => ({ job: run.job, tokens })),
        elapsedMs,
      });
      const ids = await this.#model.sample(
        sampled.map(({ run, logits }) => ({ logits, sampler: run.sampler.sampler })),
      );
      for (const [index, { slot, run }] of sampled.entries())
        if (!run.cancelled) this.#take(slot, run, ids[index] ?? -1);
      this.#failures = 0;
    } catch (error) {
      // Which of the batch was at fault is not known, nor what the context holds of it now.
      const detail = error instanceof Error ? error.message : 'the step failed';
      for (const { slot } of plan) {
        this.#forget(slot);
        this.#end(slot, { type: 'failed', detail });
      }
      this.#failures++;
      if (this.#failures >= failuresMax) this.#options.broken?.();
    }
  }

  #take(slot: Slot, run: Run, id: number): void {
    if (id < 0) return this.#end(slot, { type: 'failed', detail: 'no token fits' });
    if (this.#model.isEndOfGeneration(id)) return this.#end(slot, { type: 'stop' });
    run.next = id;
    run.generated++;
    run.sampler.accept(id);
    const stopSequence = run.job.reader.token(id);
    if (stopSequence !== undefined) this.#end(slot, { type: 'stop', stopSequence });
    else if (run.generated >= run.job.maxTokens) this.#end(slot, { type: 'length', cause: 'max-tokens' });
    else if (run.job.prompt.length + run.generated >= this.#model.facts.contextLength)
      this.#end(slot, { type: 'length', cause: 'window' });
    else if (run.guard.push(id)) this.#end(slot, { type: 'length', cause: 'repetition' });
  }

  #end(slot: Slot, ending: JobEnding): void {
    const run = slot.run;
    if (run === undefined) return;
    slot.run = undefined;
    run.sampler.dispose();
    if (!run.job.retain) this.#forget(slot);
    run.job.reader.ended(ending);
  }

  #forget(slot: Slot): void {
    this.#model.truncate(slot.index, 0);
    slot.tokens.fill(0);
    slot.tokens.length = 0;
    slot.scope = '';
  }
}

const failuresMax = 3;

/** One sequence of the context and the tokens that its cache holds. */
interface Slot {
  readonly index: number;
  readonly tokens: number[];
  scope: string;
  /** The step at which it last took part. */
  lastStep: number;
  run: Run | undefined;
}

/** A job in its slot. `next` is the token to decode; before the prompt is read there is none. */
interface Run {
  readonly job: Job;
  readonly sampler: ChoiceSampler;
  readonly guard: RepetitionGuard;
  next: number | undefined;
  generated: number;
  cancelled: boolean;
}

interface PlannedItem {
  readonly slot: Slot;
  readonly run: Run;
  readonly tokens: number;
}

/**
 * Answers first, a token each; then prompts, as many tokens as a chunk has, in the order of waiting. (A measured best width of
 * the decoding part, see "One loop" in the notes on the engine, would be chosen here.)
 */
function planStep(slots: readonly Slot[], chunkTokens: number, batchTokens: number): readonly PlannedItem[] {
  const waiting = slots
    .flatMap((slot) => (slot.run?.job.reader.takesMore === true ? [{ slot, run: slot.run }] : []))
    .sort((a, b) => a.slot.lastStep - b.slot.lastStep);
  const decoding = waiting
    .filter(({ run }) => run.next !== undefined)
    .map(({ slot, run }) => ({ slot, run, tokens: 1 }));
  const plan = decoding.slice(0, batchTokens);
  let room = Math.min(chunkTokens, batchTokens - plan.length);
  for (const { slot, run } of waiting) {
    if (run.next !== undefined || room <= 0) continue;
    const tokens = Math.min(room, run.job.prompt.length - slot.tokens.length);
    plan.push({ slot, run, tokens });
    room -= tokens;
  }
  return plan;
}

/** At least the last token of a prompt must be decoded, for its logits. */
function sharedTokens(slot: Slot, job: Job): number {
  if (!job.retain || slot.scope !== job.cacheScope) return 0;
  const most = Math.min(slot.tokens.length, job.prompt.length - 1);
  let shared = 0;
  while (shared < most && slot.tokens[shared] === job.prompt[shared]) shared++;
  return shared;
}

/** Every conversation begins with the same few tokens of the template: that alone is no reason to give up another's cache. */
function worthOf(shared: number, slot: Slot): number {
  return shared >= Math.min(32, slot.tokens.length / 2) ? shared : 0;
}

/** Of two slots of the same use: the one whose cache is the smaller loss. */
function goesBefore(slot: Slot, other: Slot): boolean {
  if ((slot.tokens.length === 0) !== (other.tokens.length === 0)) return slot.tokens.length === 0;
  return slot.lastStep < other.lastStep;
}
