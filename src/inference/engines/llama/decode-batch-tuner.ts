/**
 * Chooses how to run a step that only writes: for how many of the waiting answers, and with how many threads. llama.cpp's repacked kernels
 * are fast for one row and for multiples of four or eight and slow between, so of six waiting answers, four in turn may be faster than all
 * six together; and a second thread, which the prebuilt binary starts and joins at every step, costs more than it gains for one row and
 * gains more than it costs for eight.
 *
 * It learns from the steps themselves instead of timing them at load: a trial is a step like any other, so it delays no first answer and
 * keeps no idle core busy, it sees the depth of the real contexts, it follows a machine that changes, and no stored file can go stale. What
 * trials cost more than the best known way is limited to a share of the time that the other steps take.
 */
export class DecodeBatchTuner {
  readonly #cells: readonly Cell[];
  #steps = 0;
  #nextTrial = firstTrial;
  #trying: Cell | undefined;
  /** Time that trials may still cost; below zero nothing is tried. */
  #creditMs = 0;

  /** The first thread count is used until something is known. */
  constructor(threads: readonly number[], widthMax: number) {
    this.#cells = threads.flatMap((count) =>
      Array.from({ length: widthMax }, (_, index) => new Cell(count, index + 1)),
    );
  }

  /** Returns the choice for the next step, when this many answers wait for their next token. */
  next(waiting: number): DecodeBatch {
    const possible = this.#cells.filter(({ width }) => width <= waiting);
    const best = bestOf(possible);
    this.#trying = this.#mayTry() ? trialOf(possible, best, this.#steps) : undefined;
    const { threads, width, stepMs } = this.#trying ?? best;
    return { threads, width, stepMs };
  }

  /** Records the step that `next` chose, if nothing else disturbed it. */
  observe(threads: number, width: number, elapsedMs: number): void {
    const cell = this.#cells.find((other) => other.threads === threads && other.width === width);
    if (cell === undefined) return;
    this.#steps++;
    if (cell === this.#trying) {
      const known = bestOf(this.#cells.filter((other) => other.width <= width)).tokenMs;
      this.#creditMs -= Math.max(0, elapsedMs - (known === Infinity ? elapsedMs : known * width));
      this.#nextTrial = this.#steps + (cell.seen < enough ? trialEveryFirst : trialEvery);
    } else this.#creditMs = Math.min(creditMsMax, this.#creditMs + elapsedMs * trialShare);
    this.#trying = undefined;
    cell.see(elapsedMs, this.#steps);
  }

  #mayTry(): boolean {
    return this.#steps >= this.#nextTrial && this.#creditMs >= 0;
  }
}

export interface DecodeBatch {
  readonly threads: number;
  readonly width: number;
  /** Expected duration; infinite if unknown. */
  readonly stepMs: number;
}

/** One way to run a step, and its recent times. */
class Cell {
  readonly threads: number;
  readonly width: number;
  readonly #recentMs: number[] = [];
  #tokenMs = Infinity;
  seen = 0;
  lastStep = 0;

  constructor(threads: number, width: number) {
    this.threads = threads;
    this.width = width;
  }

  /** Time per token of one answer: the minimum of the last few, since a busy machine only ever makes a step longer. */
  get tokenMs(): number {
    return this.#tokenMs;
  }

  get stepMs(): number {
    return this.#tokenMs * this.width;
  }

  see(elapsedMs: number, step: number): void {
    // At least the clock's resolution, so that a cost is never zero.
    this.#recentMs.push(Math.max(elapsedMs, 0.001));
    if (this.#recentMs.length > enough) this.#recentMs.shift();
    this.#tokenMs = Math.min(...this.#recentMs) / this.width;
    this.seen++;
    this.lastStep = step;
  }
}

/** Returns the widest step with the first thread count, unless another way is clearly faster. */
function bestOf(possible: readonly Cell[]): Cell {
  const [first] = possible;
  if (first === undefined) throw new Error('no answer waits for this step');
  let best = possible.findLast(({ threads }) => threads === first.threads) ?? first;
  // Nothing is known about it yet; this step will show.
  if (best.seen === 0) return best;
  // Among equals the widest, so that no answer waits needlessly.
  for (const cell of possible.toSorted((a, b) => b.width - a.width))
    if (cell.tokenMs < best.tokenMs * clearly) best = cell;
  return best;
}

/** Chooses a trial: the least known way first, then the one seen longest ago; ways that proved much worse are tried rarely. */
function trialOf(possible: readonly Cell[], best: Cell, step: number): Cell | undefined {
  const candidates = possible.filter(
    (cell) =>
      cell !== best &&
      (cell.seen < enough || cell.tokenMs < best.tokenMs * hopeless || step - cell.lastStep > hopelessEvery),
  );
  const [first, ...others] = candidates;
  if (first === undefined) return undefined;
  return others.reduce((next, cell) => (goesBefore(cell, next) ? cell : next), first);
}

function goesBefore(cell: Cell, other: Cell): boolean {
  const [known, otherKnown] = [Math.min(cell.seen, enough), Math.min(other.seen, enough)];
  return known === otherKnown ? cell.lastStep < other.lastStep : known < otherKnown;
}

/** Steps before the first trial, so that a first answer has already begun. */
const firstTrial = 8;
const trialEveryFirst = 2;
const trialEvery = 32;
const trialShare = 0.03;
const creditMsMax = 100;
/** A way seen this often is known; this many of its latest times count. */
const enough = 3;
const clearly = 0.9;
const hopeless = 1.5;
const hopelessEvery = 2048;
