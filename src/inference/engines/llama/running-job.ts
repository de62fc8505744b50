import type { ConstrainedText } from './constrained-text.ts';
import type { Direction, Job, JobEnding, MadeToken } from './job.ts';
import type { LlamaModel, Logprobs } from './llama-model.ts';
import { RepetitionGuard } from './repetition.ts';
import { ChoiceSampler } from './sampling.ts';
import type { Slot as SlotOf } from './slots.ts';

/** `hiddenTokens`: tokens whose text readers do not see. */
export function runOf(
  job: Job,
  cachedTokens: number,
  model: LlamaModel,
  hiddenTokens: readonly number[] | undefined,
): Run {
  const sampler = new ChoiceSampler(
    model.createSampler(),
    job.sampling,
    job.prompt,
    model.facts.contextLength,
    hiddenTokens,
    job.banned,
    (id) => model.isEndOfGeneration(id),
  );
  return {
    job,
    cachedTokens,
    sampler,
    logprobs: job.topLogprobs === undefined ? undefined : model.createLogprobs(job.topLogprobs),
    guard: new RepetitionGuard(),
    constrained: undefined,
    forced: [...(job.opening ?? [])],
    constrainFrom: job.constraint?.from === 'opening' ? '' : undefined,
    next: undefined,
    unreported: undefined,
    ending: undefined,
    generated: 0,
    cancelled: false,
  };
}

/** Reports the last token to the reader, and notes what the text so far implies. */
export function report(run: Run): void {
  const token = run.unreported;
  if (token === undefined) return;
  run.unreported = undefined;
  let direction: Direction | undefined;
  try {
    direction = run.job.reader.token(token);
  } catch (error) {
    // The error ends only its own answer. Only its name is logged: the message may quote the answer.
    run.ending = { type: 'failed', detail: `the reader failed: ${error instanceof Error ? error.name : 'unknown'}` };
    return;
  }
  if (direction === undefined) return;
  const { stop, force, constrainFrom } = direction;
  if (stop !== undefined)
    run.ending ??= { type: 'stop', ...(stop.sequence === undefined ? {} : { stopSequence: stop.sequence }) };
  if (force !== undefined) run.forced.push(...force);
  if (constrainFrom !== undefined) run.constrainFrom = constrainFrom;
}

export type Slot = SlotOf<Run>;

/** A job in its slot. `next` is the token to decode, `undefined` until the prompt is read. */
export interface Run {
  readonly job: Job;
  readonly cachedTokens: number;
  readonly sampler: ChoiceSampler;
  readonly logprobs: Logprobs | undefined;
  readonly guard: RepetitionGuard;
  /** Set once the constraint holds. */
  constrained: ConstrainedText | undefined;
  /** Ids that come next. */
  readonly forced: number[];
  /** The constraint holds as soon as no forced ids are left; this text was written under it. */
  constrainFrom: string | undefined;
  next: number | undefined;
  /** The last token, until its reader has been notified. */
  unreported: MadeToken | undefined;
  /** Set when its reader found that the answer is over. */
  ending: JobEnding | undefined;
  generated: number;
  cancelled: boolean;
}
