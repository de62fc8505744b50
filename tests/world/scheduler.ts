import { setImmediate as nextTurn } from 'node:timers';

import { mulberry32 } from '../support/random.ts';

/** A process, or a thread of one. What it has scheduled ends with it. */
export interface Owner {
  isDead: boolean;
  readonly of?: Owner;
}

export interface Task {
  dueMs: number;
  readonly order: number;
  readonly owner: Owner;
  readonly run: () => void;
  isCancelled: boolean;
}

/** Tasks that keep their order among each other. */
export class Lane {
  lastMs = 0;
}

/** Something that others wait for, and that comes once. */
export class Moment {
  hasCome = false;
  #wake: (() => void)[] = [];

  come(): void {
    this.hasCome = true;
    for (const wake of this.#wake.splice(0)) wake();
  }

  /** Resolves with whether it has come by then. */
  within(scheduler: Scheduler, ms: number): Promise<boolean> {
    return new Promise((resolve) => {
      const late = scheduler.after(ms, scheduler.world, () => resolve(this.hasCome));
      const wake = (): void => {
        late.isCancelled = true;
        resolve(true);
      };
      if (this.hasCome) wake();
      else this.#wake.push(wake);
    });
  }
}

/** Everything that ever runs in a world, one task after the other, in an order that a seed decides, on a clock that only tasks move. */
export class Scheduler {
  readonly random: () => number;
  /** The time that only passes. */
  nowMs = 1_000;
  /** The time of day is ahead of it by this. */
  aheadMs: number;
  readonly trace: string[] = [];
  tasksRun = 0;
  /** How often the time of day was set, and the furthest that it was. */
  clockSets = 0;
  setMostMs = 0;
  /** What the world does by itself: clients, servers, faults. */
  readonly world: Owner = { isDead: false };
  readonly #heap: Task[] = [];
  #orders = 0;

  constructor(seed: number, startMs: number) {
    this.random = mulberry32(seed);
    this.aheadMs = startMs - this.nowMs;
  }

  get wallMs(): number {
    return Math.floor(this.nowMs + this.aheadMs);
  }

  between(least: number, most: number): number {
    return least + Math.floor(this.random() * (most - least + 1));
  }

  chance(share: number): boolean {
    return this.random() < share;
  }

  pick<Value>(values: readonly Value[]): Value {
    return values[Math.floor(this.random() * values.length)]!;
  }

  note(line: string): void {
    this.trace.push(`${this.nowMs.toFixed(3)} ${line}`);
  }

  /** Runs it after this time or a little later, and after everything that the lane has before it. */
  after(ms: number, owner: Owner, run: () => void, lane?: Lane): Task {
    let dueMs = this.nowMs + ms + this.random() * 0.05;
    if (lane !== undefined) dueMs = lane.lastMs = Math.max(dueMs, lane.lastMs);
    const task = { dueMs, order: this.#orders++, owner, run, isCancelled: false };
    this.#push(task);
    return task;
  }

  /** Sets the time of day this much later, or earlier. */
  setClock(byMs: number): void {
    this.aheadMs += byMs;
    this.clockSets++;
    this.setMostMs = Math.max(this.setMostMs, Math.abs(byMs));
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.after(ms, this.world, resolve));
  }

  /** Runs tasks until the work is done. Promises are real: before the next task, all that can go on has gone on. */
  run<Value>(work: Promise<Value>): Promise<Value> {
    let isDone = false;
    const ended = (): void => void (isDone = true);
    work.then(ended, ended);
    return new Promise((resolve, reject) => {
      const step = (): void => {
        if (isDone) {
          work.then(resolve, reject);
          return;
        }
        const task = this.#pop();
        if (task === undefined) {
          reject(new Error('the world stands still: nothing is scheduled any more'));
          return;
        }
        this.nowMs = Math.max(this.nowMs, task.dueMs);
        this.tasksRun++;
        try {
          task.run();
        } catch (error) {
          reject(error);
          return;
        }
        nextTurn(step);
      };
      nextTurn(step);
    });
  }

  #push(task: Task): void {
    const heap = this.#heap;
    let at = heap.push(task) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!isBefore(task, heap[above]!)) break;
      heap[at] = heap[above]!;
      at = above;
    }
    heap[at] = task;
  }

  #pop(): Task | undefined {
    for (;;) {
      const heap = this.#heap;
      const first = heap[0];
      const last = heap.pop();
      if (first === undefined || last === undefined) return undefined;
      if (heap.length > 0) this.#sink(last);
      if (!first.isCancelled && !isOver(first.owner)) return first;
    }
  }

  #sink(task: Task): void {
    const heap = this.#heap;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= heap.length) break;
      if (below + 1 < heap.length && isBefore(heap[below + 1]!, heap[below]!)) below++;
      if (!isBefore(heap[below]!, task)) break;
      heap[at] = heap[below]!;
      at = below;
    }
    heap[at] = task;
  }
}

const isBefore = (one: Task, other: Task): boolean =>
  one.dueMs < other.dueMs || (one.dueMs === other.dueMs && one.order < other.order);

export const isOver = (owner: Owner): boolean => owner.isDead || (owner.of !== undefined && isOver(owner.of));
