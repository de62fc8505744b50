import { freemem } from 'node:os';
import type { MemoryNeeds } from './memory-needs.ts';
import { ModelRefused } from './model-refused.ts';

export interface MemoryBudgetOptions {
  /** For the key-value caches of all models together; a quarter of the free memory by default. */
  readonly cacheBytesMax: number | undefined;
  /** How many models will make claims. Those that leave the number of slots open get equal shares. */
  readonly models: number;
  /** Memory available now. */
  readonly freeBytes?: () => number;
}

/** A model's memory, until it is released. */
export interface MemoryClaim {
  readonly slots: number;
  readonly cacheBytes: number;
  release(): void;
}

/**
 * The memory of all embedded models. A context takes slots × context × bytes per token when it is opened, whatever it holds: 377
 * MB for 8 slots of 2,048 tokens of a model of 98 MB. So it is claimed before a model is loaded, and a model that does not fit
 * gets a clear refusal instead of the kernel's. A model that is unloaded for a while keeps its claim, so it can come back.
 */
export class MemoryBudget {
  readonly #cacheBytesMax: number;
  readonly #isConfigured: boolean;
  readonly #freeBytes: () => number;
  /** Free bytes at the start: other models' claims need not be allocated by the system yet. */
  readonly #freeBytesFirst: number;
  #cacheBytes = 0;
  #allBytes = 0;
  #modelsToCome: number;

  constructor({ cacheBytesMax, models, freeBytes = freeBytesNow }: MemoryBudgetOptions) {
    this.#freeBytes = freeBytes;
    this.#freeBytesFirst = freeBytes();
    this.#cacheBytesMax = cacheBytesMax ?? Math.floor(this.#freeBytesFirst * freeShare);
    this.#isConfigured = cacheBytesMax !== undefined;
    this.#modelsToCome = models;
  }

  /** Throws `ModelRefused` when the model does not fit. */
  claim({ fileBytes, slots: wanted, workBytes, placesInWords }: MemoryNeeds): MemoryClaim {
    const left = this.#cacheBytesMax - this.#cacheBytes;
    const share = left / Math.max(1, this.#modelsToCome);
    this.#modelsToCome--;
    let slots = wanted ?? slotsDefault;
    while (wanted === undefined && slots > 1 && workBytes(slots) > share) slots--;
    const cacheBytes = workBytes(slots);
    const places = placesInWords(slots);
    if (cacheBytes > left) {
      const limit = this.#isConfigured ? 'cache_bytes_max' : 'a quarter of the free memory';
      throw new ModelRefused(
        `the cache for ${places} needs ${inWords(cacheBytes)}, and ${inWords(left)} of ${limit} is free: lower slots or context_length, or raise cache_bytes_max`,
      );
    }
    const allBytes = fileBytes + cacheBytes;
    const freeBytes = Math.min(this.#freeBytesFirst - this.#allBytes, this.#freeBytes());
    if (allBytes > freeBytes) {
      throw new ModelRefused(
        `it needs ${inWords(allBytes)} of memory with ${places}, and ${inWords(freeBytes)} is free: lower slots or context_length, or choose a smaller model`,
      );
    }
    this.#cacheBytes += cacheBytes;
    this.#allBytes += allBytes;
    let released = false;
    return {
      slots,
      cacheBytes,
      release: () => {
        if (released) return;
        released = true;
        this.#cacheBytes -= cacheBytes;
        this.#allBytes -= allBytes;
      },
    };
  }
}

/**
 * Memory that the system can give without swapping, within the container's limit. (Not `process.availableMemory`: there the model
 * file itself counts as taken as soon as it was read once.)
 */
function freeBytesNow(): number {
  return Math.min(freemem(), process.constrainedMemory() || Infinity);
}

const slotsDefault = 4;
const freeShare = 0.25;

function inWords(bytes: number): string {
  const positive = Math.max(0, bytes);
  return positive >= 1e9 ? `${(positive / 1e9).toFixed(1)} GB` : `${Math.ceil(positive / 1e6)} MB`;
}
