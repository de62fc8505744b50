import type { ComputeReport } from '../engine.ts';
import { computeInWords, type Compute, type GpuUse } from './compute.ts';
import type { MemoryClaim } from './memory-budget.ts';
import type { MemoryNeeds } from './memory-needs.ts';
import { ModelRefused } from './model-refused.ts';

export interface MeansOptions {
  readonly memory: MemoryClaim;
  /** Memory needs of the whole model, wherever it is. */
  readonly needs: MemoryNeeds;
  /** Releases the GPU's memory. */
  readonly release: () => void;
  readonly onLost: (reason: string, next: 'gpu' | 'processor') => void;
  readonly now?: () => number;
}

export const processorOnly: Compute = { on: 'processor', reason: '', isExpected: true };

/**
 * What a model's children compute on: what was chosen, until a GPU fails. If a child dies while it works, something else may have caused
 * it, so the GPU is tried once more; a GPU on which no child can be loaded, or on which one dies twice in ten minutes, is given up for as
 * long as the model is served.
 */
export class Means {
  readonly #options: MeansOptions;
  #compute: Compute;
  #wasOnGpu = false;
  #lostMs = -Infinity;

  constructor(compute: Compute, options: MeansOptions) {
    this.#compute = compute;
    this.#options = options;
  }

  get use(): false | GpuUse {
    return this.#compute.on === 'processor' ? false : { ...this.#compute.build, layers: this.#compute.layers };
  }

  /** Whether the last child that died computed on a GPU. */
  get wasOnGpu(): boolean {
    return this.#wasOnGpu;
  }

  get report(): ComputeReport {
    const compute = this.#compute;
    const isOfNote = compute.on === 'gpu' || !compute.isExpected;
    const note = isOfNote ? compute.reason : undefined;
    return { with: computeInWords(compute), isOfNote, ...(note === undefined ? {} : { note }) };
  }

  /** Records that a child died; returns whether the next one computes on something else. */
  retreat({ loaded, reason }: { readonly loaded: boolean; readonly reason: string }): boolean {
    this.#wasOnGpu = this.#compute.on === 'gpu';
    if (this.#compute.on !== 'gpu') return false;
    const { memory, needs, onLost, release, now = () => performance.now() } = this.#options;
    const sinceLastMs = now() - this.#lostMs;
    this.#lostMs = now();
    if (loaded && sinceLastMs > provenMs) {
      onLost(reason, 'gpu');
      return false;
    }
    try {
      memory.grow(needs);
    } catch (error) {
      if (!(error instanceof ModelRefused)) throw error;
      onLost(`${reason}; without it, ${error.message}`, 'gpu');
      return false;
    }
    release();
    const words = computeInWords(this.#compute);
    this.#compute = { on: 'processor', reason: `${words} failed: ${reason}`, isExpected: false };
    onLost(reason, 'processor');
    return true;
  }

  release(): void {
    this.#options.release();
  }
}

const provenMs = 600_000;
