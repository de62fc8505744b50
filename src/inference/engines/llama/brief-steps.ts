/**
 * Which steps are made in the thread of the child's JavaScript: the brief ones. Another thread takes 0.2 ms to begin and to be heard of, and
 * several where the machine is busy. When a step follows one of another thread, the scheduler may have both of its threads on one core, for
 * up to 300 ms: so short prompts are read in the thread that writes. Messages wait for such steps, so longer ones are not made there.
 */
export class BriefSteps {
  #letInAtMs = 0;
  #freeAtMs = 0;

  /** How long a step may take here until it is given up; 0: it is made elsewhere. */
  msFor(expectedMs: number): number {
    return expectedMs < briefMs && performance.now() >= this.#freeAtMs ? briefMsMax : 0;
  }

  /** One took longer than `msFor` allowed, so that another thread makes it. */
  gaveUp(): void {
    this.#freeAtMs = performance.now() + elsewhereMs;
  }

  /** Messages have waited for so long that the next step comes after them. */
  get isDue(): boolean {
    return performance.now() - this.#letInAtMs >= letInEveryMs;
  }

  letIn(): void {
    this.#letInAtMs = performance.now();
  }
}

const briefMs = 75;
/**
 * Where others want the processors, llama.cpp's threads wait for each other, in up to seconds (measured: 2.8 s instead of 4 ms beside ten
 * other processes on two cores), and a child that hears nothing for 4 s is killed (`child-process.ts`). Then this thread makes no
 * step for a while.
 */
const briefMsMax = 150;
const elsewhereMs = 3000;
const letInEveryMs = 5;
