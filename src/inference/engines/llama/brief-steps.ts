/**
 * Decides which steps run on the child's JavaScript thread: the short ones. Another thread takes 0.2 ms to start and report back, and
 * several milliseconds on a busy machine. When a step follows one of another thread, the scheduler may have both of its threads on one core
 * for up to 300 ms, so short prompts are read on the thread that writes. Messages wait for such steps, so longer ones run elsewhere.
 */
export class BriefSteps {
  #letInAtMs = 0;
  #freeAtMs = 0;

  /** Returns how long a step may take here before it is given up; 0: run it elsewhere. */
  msFor(expectedMs: number): number {
    return expectedMs < briefMs && performance.now() >= this.#freeAtMs ? briefMsMax : 0;
  }

  /** Records that a step took longer than `msFor` allowed, so that another thread has to run it. */
  gaveUp(): void {
    this.#freeAtMs = performance.now() + elsewhereMs;
  }

  /** Whether messages have waited long enough that they come before the next step. */
  get isDue(): boolean {
    return performance.now() - this.#letInAtMs >= letInEveryMs;
  }

  letIn(): void {
    this.#letInAtMs = performance.now();
  }
}

const briefMs = 75;
/**
 * When other processes need the processors, llama.cpp's threads wait for each other for up to seconds (measured: 2.8 s instead of 4 ms
 * beside ten other processes on two cores), and a child that does not respond for 4 s is killed (`child-process.ts`). After a step this
 * long, this thread runs no steps for a while.
 */
const briefMsMax = 150;
const elsewhereMs = 3000;
const letInEveryMs = 5;
