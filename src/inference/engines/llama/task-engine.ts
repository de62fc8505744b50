import { setImmediate as nextTurn } from 'node:timers/promises';
import type { GenerationEvent } from '../../../generation/event.ts';
import { ApiError } from '../../../platform/errors.ts';
import type { Task } from '../../../generation/request.ts';
import type { Rpc } from '../../../platform/rpc/rpc.ts';
import { taskEvents, type Finding } from '../task-events.ts';
import type { Counted, HostCalls, ModelFacts, Refusal, Work } from './protocol.ts';
import { engineFailure, refusalOf } from './refusal.ts';
import type { TaskModel } from './task-bindings.ts';
import { TaskPrompts } from './task-prompts.ts';
import { TaskQueue } from './task-queue.ts';

export interface TaskEngineOptions {
  readonly host: Pick<Rpc<HostCalls>, 'note'>;
  readonly threadsMax: number;
  /** Called when the model is unusable. */
  readonly broken: () => void;
}

/** A child's engine for a model that embeds or ranks. */
export class TaskEngine {
  readonly #model: TaskModel;
  readonly #options: TaskEngineOptions;
  readonly #prompts: TaskPrompts;
  readonly #queue: TaskQueue;
  /** Cancels requests whose texts are being split, or whose inputs are being computed. */
  readonly #running = new Map<number, () => void>();

  constructor(model: TaskModel, options: TaskEngineOptions) {
    this.#model = model;
    this.#options = options;
    this.#prompts = new TaskPrompts(model);
    this.#queue = new TaskQueue(model.contexts, options);
  }

  get facts(): ModelFacts {
    const { contextLength, vocabularySize } = this.#model.facts;
    return { slots: this.#model.contexts.length, contextLength, vocabularySize, removesDefaultSystem: false };
  }

  get working(): number {
    return this.#queue.working;
  }

  /** Counts tokens. A cancelled count is never answered. */
  count(request: number, work: Work, counted: (outcome: Counted) => void): void {
    void this.#split(request, work).then(
      (inputs) => {
        if (inputs === undefined) return;
        this.#running.delete(request);
        counted({ tokens: tokensOf(inputs) });
      },
      (error: unknown) => counted({ refusal: this.#refusal(request, error) }),
    );
  }

  generate(request: number, work: Work): void {
    void this.#split(request, work).then(
      (inputs) => {
        if (inputs !== undefined) this.#compute(request, work, inputs);
      },
      (error: unknown) => this.#refuse(request, this.#refusal(request, error)),
    );
  }

  /** Does nothing: a request's results are bounded, so none waits for its reader. */
  taken(): void {}

  cancel(request: number): void {
    this.#running.get(request)?.();
    this.#running.delete(request);
  }

  /** Splits the texts; `undefined`: the request was cancelled. */
  async #split(request: number, work: Work): Promise<readonly Uint32Array[] | undefined> {
    let isCancelled = false;
    this.#running.set(request, () => (isCancelled = true));
    const pieces = this.#prompts.inPieces({ ...work, task: taskOf(work) });
    for (;;) {
      const { done, value } = pieces.next();
      if (isCancelled) return undefined;
      if (done === true) return value;
      // Messages come in here, and contexts take their next inputs.
      await nextTurn();
    }
  }

  #compute(request: number, work: Work, inputs: readonly Uint32Array[]): void {
    const task = taskOf(work);
    const { scoresAreLogits } = this.#model.facts;
    let events: GenerationEvent[] = [{ type: 'start', promptTokens: tokensOf(inputs) }];
    let found = 0;
    const cancel = this.#queue.submit({
      task,
      inputs,
      scope: work.cacheScope,
      found: (input, numbers) => {
        const results = taskEvents(task, input, findingOf(task, numbers, scoresAreLogits));
        if (results === undefined) throw new Error('the model made numbers that are none');
        for (const event of results) events.push(event);
        found++;
        this.#options.host.note('events', { request, events, tokens: 1, last: found === inputs.length });
        events = [];
      },
      ended: (error) => {
        this.#running.delete(request);
        if (error !== undefined) this.#refuse(request, failureOf(error));
      },
    });
    // If no input was slow, it may have ended already.
    if (found < inputs.length) this.#running.set(request, cancel);
  }

  #refusal(request: number, error: unknown): Refusal {
    this.#running.delete(request);
    return refusalOf(error);
  }

  #refuse(request: number, refusal: Refusal): void {
    this.#options.host.note('refused', { request, refusal });
  }
}

function taskOf({ task }: Pick<Work, 'task'>): Task {
  if (task === undefined)
    throw new ApiError('unsupported_feature', 'This model writes no answers.', { param: 'model' });
  return task;
}

function findingOf(task: Task, numbers: Float64Array, scoresAreLogits: boolean): Finding {
  if (task.type === 'embed') return numbers;
  const score = numbers[0] ?? NaN;
  return scoresAreLogits ? 1 / (1 + Math.exp(-score)) : score;
}

const failureOf = (error: unknown): Refusal =>
  error instanceof ApiError
    ? refusalOf(error)
    : engineFailure(error instanceof Error ? error.message : 'an input failed');

const tokensOf = (inputs: readonly Uint32Array[]): number => inputs.reduce((sum, ids) => sum + ids.length, 0);
