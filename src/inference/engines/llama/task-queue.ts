import type { Task } from '../../../generation/request.ts';
import type { TaskContext } from './task-bindings.ts';

/** The inputs of one request. */
export interface TaskJob {
  readonly task: Task;
  readonly inputs: readonly Uint32Array[];
  /** Identifies the account. */
  readonly scope: string;
  /** Takes the result of an input. If it throws, the job ends. */
  found(input: number, numbers: Float64Array): void;
  /** Called once when all inputs are computed, or one failed with this error; never for a cancelled job. */
  ended(error?: unknown): void;
}

interface Run {
  readonly job: TaskJob;
  /** The inputs that no context has taken yet. */
  readonly waiting: number[];
  open: number;
  /** When a context last took one of its inputs. */
  turn: number;
  isOver: boolean;
}

export interface TaskQueueOptions {
  /** Total for all contexts. */
  readonly threadsMax: number;
  /** Called when several inputs in a row failed: the model is unusable. */
  readonly broken: () => void;
}

/**
 * Shares the contexts of a model among the inputs of all requests: a free context takes the next input of the account with the fewest
 * inputs under way, from its longest-waiting request. So a single text waits for one of another account's two thousand inputs, not for all
 * of them. The threads are shared among the working contexts.
 */
export class TaskQueue {
  readonly #contexts: readonly TaskContext[];
  readonly #options: TaskQueueOptions;
  readonly #runs = new Set<Run>();
  /** The run whose input a context computes. */
  readonly #busy = new Map<TaskContext, Run>();
  #turns = 0;
  #failures = 0;

  constructor(contexts: readonly TaskContext[], options: TaskQueueOptions) {
    // Long inputs fit only some contexts: inputs that fit a small one leave the large one free for them.
    this.#contexts = contexts.toSorted((a, b) => a.window - b.window);
    this.#options = options;
  }

  /** Number of inputs being computed or waiting. */
  get working(): number {
    let waiting = 0;
    for (const run of this.#runs) waiting += run.waiting.length;
    return waiting + this.#busy.size;
  }

  /** Submits a job and returns a function that cancels it; at most one more batch of its inputs is computed. */
  submit(job: TaskJob): () => void {
    const run: Run = { job, waiting: [...job.inputs.keys()], open: job.inputs.length, turn: 0, isOver: false };
    this.#runs.add(run);
    this.#fill();
    return () => this.#close(run);
  }

  #fill(): void {
    for (const context of this.#contexts) {
      if (this.#busy.has(context)) continue;
      const next = this.#next(context.window);
      if (next === undefined) continue;
      const { run, at } = next;
      const [input] = run.waiting.splice(at, 1);
      run.turn = ++this.#turns;
      this.#busy.set(context, run);
      void this.#compute(context, run, input!);
    }
  }

  #next(window: number): { readonly run: Run; readonly at: number } | undefined {
    let best: { readonly run: Run; readonly at: number; readonly held: number } | undefined;
    for (const run of this.#runs) {
      const at = run.waiting.findIndex((input) => run.job.inputs[input]!.length <= window);
      if (at < 0) continue;
      const held = [...this.#busy.values()].filter(({ job }) => job.scope === run.job.scope).length;
      if (best === undefined || held < best.held || (held === best.held && run.turn < best.run.turn))
        best = { run, at, held };
    }
    return best;
  }

  async #compute(context: TaskContext, run: Run, input: number): Promise<void> {
    const threads = Math.max(1, Math.floor(this.#options.threadsMax / this.#busy.size));
    try {
      const numbers = await context.compute(run.job.inputs[input]!, threads, () => !run.isOver);
      this.#failures = 0;
      if (numbers !== undefined) this.#found(run, input, numbers);
    } catch (error) {
      this.#failures++;
      this.#end(run, error);
      if (this.#failures >= failuresMax) this.#options.broken();
    } finally {
      this.#busy.delete(context);
      this.#fill();
    }
  }

  #found(run: Run, input: number, numbers: Float64Array): void {
    if (run.isOver) return;
    try {
      run.job.found(input, numbers);
    } catch (error) {
      this.#end(run, error);
      return;
    }
    run.open--;
    if (run.open === 0) this.#end(run);
  }

  #end(run: Run, error?: unknown): void {
    if (run.isOver) return;
    this.#close(run);
    run.job.ended(error);
  }

  #close(run: Run): void {
    run.isOver = true;
    this.#runs.delete(run);
  }
}

const failuresMax = 3;
