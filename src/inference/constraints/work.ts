import { ApiError } from '../../platform/errors.ts';

/**
 * Counts the steps of one compilation, so that no input can stall it: a bound on steps is the same on a slow machine as on a fast one. A
 * step is about 1 µs of work; the bound keeps a compilation near 50 ms (reliability 3.4).
 */
export class Work {
  /** The field being compiled, for the `param` of the error. */
  readonly at: string;
  readonly stepsMax: number;
  #steps = 0;
  readonly #made = new WeakMap<object, unknown>();

  constructor(at: string, stepsMax = compileStepsMax) {
    this.at = at;
    this.stepsMax = stepsMax;
  }

  get steps(): number {
    return this.#steps;
  }

  /** Returns the result of `make` for `from`, computed once. */
  once<From extends object, Made>(from: From, make: (from: From) => Made): Made {
    if (!this.#made.has(from)) this.#made.set(from, make(from));
    return this.#made.get(from) as Made;
  }

  /** Counts steps. Throws `unsupported_value` 400 when they exceed the bound (contracts decision 13). */
  spend(steps: number): void {
    this.#steps += steps;
    if (this.#steps > this.stepsMax) {
      throw new ApiError('unsupported_value', `'${this.at}' takes more than ${this.stepsMax} steps to compile.`, {
        param: this.at,
      });
    }
  }
}

const compileStepsMax = 50_000;
