import { freemem } from 'node:os';
import { RoomClaim, SharedRoom, type Occupant } from '../shared-room.ts';
import { slotsDefault, type MemoryNeeds } from './memory-needs.ts';
import { ModelRefused } from './model-refused.ts';

export interface MemoryBudgetOptions {
  /** For all models loaded at the same time; four fifths of the free memory by default. */
  readonly bytesMax?: number | undefined;
  /** For their key-value caches; a quarter of the free memory by default. */
  readonly cacheBytesMax: number | undefined;
  /** How many models will be registered. Those that leave the number of slots open get equal shares. */
  readonly models: number;
  /** Memory available now. */
  readonly freeBytes?: () => number;
  /** How long a model works before it has to make room for one that waits: 10 s. */
  readonly turnMs?: number;
}

/** A model's memory, until it is released. */
export interface MemoryClaim extends RoomClaim {
  readonly slots: number;
  readonly cacheBytes: number;
  /** Total memory, by its header or by measurement, whichever is more. */
  readonly bytes: number;
  /** Records a measured memory use. */
  measured(bytes: number): void;
  /** Declares its needs from now on, with its present slots; throws `ModelRefused` if they do not fit even alone. */
  grow(needs: MemoryNeeds): void;
}

/**
 * Shares memory among all embedded models, so that the kernel never has to kill one. What a model takes (its file, the caches of its slots,
 * and its working memory) is known before it is loaded: one that can never fit is refused, and of the others those in demand are in memory.
 * To make room for a waiting model, idle ones leave, the least recently used first; if that is not enough, the one that has been there
 * longest finishes what it has begun and leaves.
 */
export class MemoryBudget {
  readonly #cacheBytesMax: number;
  readonly #bytesMax: number;
  readonly #freeBytes: () => number;
  readonly #isCacheConfigured: boolean;
  readonly #isConfigured: boolean;
  readonly #room: SharedRoom<Claim>;
  #modelsToCome: number;

  constructor(options: MemoryBudgetOptions) {
    const { bytesMax, cacheBytesMax, models, freeBytes = freeBytesNow, turnMs = 10_000 } = options;
    const freeFirst = freeBytes();
    this.#freeBytes = freeBytes;
    this.#room = new SharedRoom<Claim>({
      turnMs,
      recheckMs,
      fits: (claim, others, leaving) => this.#fits(claim, others, leaving),
      settled: () => this.#unloadExcess(),
    });
    this.#bytesMax = bytesMax ?? Math.floor(freeFirst * allShare);
    this.#cacheBytesMax = Math.min(this.#bytesMax, cacheBytesMax ?? Math.floor(freeFirst * cacheShare));
    this.#isConfigured = bytesMax !== undefined;
    this.#isCacheConfigured = cacheBytesMax !== undefined;
    this.#modelsToCome = models;
  }

  /** Throws `ModelRefused` if the model does not fit even alone. It enters memory only after a request. */
  register(needs: MemoryNeeds, occupant: Occupant): MemoryClaim {
    const { slots, cacheBytes, bytes } = this.#sizeOf(needs);
    this.#modelsToCome--;
    return this.#room.add(new Claim(this, this.#room, occupant, slots, cacheBytes, bytes));
  }

  /** Throws what `register` would throw. */
  refuseTooLarge(needs: MemoryNeeds): void {
    this.#sizeOf(needs);
  }

  #sizeOf({ fileBytes, slots: wanted, workBytes, placesInWords }: MemoryNeeds) {
    const claims = this.#room.claims;
    const planned = claims.reduce((sum, { cacheBytes }) => sum + cacheBytes, 0);
    const share = (this.#cacheBytesMax - planned) / Math.max(1, this.#modelsToCome);
    let slots = wanted ?? slotsDefault;
    while (wanted === undefined && slots > 1 && workBytes(slots) > share) slots--;
    const cacheBytes = workBytes(slots);
    const places = placesInWords(slots);
    if (cacheBytes > this.#cacheBytesMax) {
      const limit = this.#isCacheConfigured ? 'cache_bytes_max' : 'a quarter of the free memory';
      throw new ModelRefused(
        `the cache for ${places} needs ${inWords(cacheBytes)}, and ${limit} is ${inWords(this.#cacheBytesMax)}: lower slots or context_length, or raise cache_bytes_max`,
      );
    }
    const bytes = fileBytes + cacheBytes + processBytes;
    this.#refuseBeyond(bytes, places, claims);
    return { slots, cacheBytes, bytes };
  }

  /** Throws `ModelRefused` if a model of that size does not fit even alone. */
  refuseGrowth(claim: Claim, { bytes, places }: { readonly bytes: number; readonly places: string }): void {
    this.#refuseBeyond(
      bytes,
      places,
      this.#room.claims.filter((each) => each !== claim),
    );
  }

  #refuseBeyond(bytes: number, places: string, claims: readonly Claim[]): void {
    const pinned = claims.filter((each) => each.occupant.isPinned);
    const left = this.#bytesMax - sumOf(pinned);
    if (bytes <= left) return;
    const limit = this.#isConfigured ? 'embedded_memory_bytes_max' : 'the free memory';
    const besides = pinned.length === 0 ? '' : ' beside the pinned models';
    throw new ModelRefused(
      `it needs ${inWords(bytes)} with ${places}, and ${limit} has room for ${inWords(left)}${besides}: lower slots or context_length, or choose a smaller model`,
    );
  }

  #fits(claim: Claim, others: readonly Claim[], leaving: readonly Claim[]): boolean {
    const cacheBytes = others.reduce((sum, each) => sum + each.cacheBytes, 0) + claim.cacheBytes;
    if (cacheBytes > this.#cacheBytesMax || sumOf(others) + claim.bytes > this.#bytesMax) return false;
    // The system does not yet reflect memory that is being loaded or was just freed. A model that is alone is always admitted.
    return others.length === 0 || claim.bytes <= this.#freeBytes() + sumOf(leaving);
  }

  /** Unloads idle models when the resident ones turn out to take more than their headers say. */
  #unloadExcess(): void {
    for (const idle of this.#room.victims().filter(({ occupant }) => occupant.isIdle)) {
      const staying = this.#room.resident.filter(({ place }) => place.kind === 'in');
      if (sumOf(staying) <= this.#bytesMax || staying.length < 2) return;
      this.#room.makeLeave(idle);
    }
  }
}

class Claim extends RoomClaim implements MemoryClaim {
  readonly #budget: MemoryBudget;
  readonly #room: SharedRoom<Claim>;
  readonly slots: number;
  cacheBytes: number;
  bytes: number;

  constructor(
    budget: MemoryBudget,
    room: SharedRoom<Claim>,
    occupant: Occupant,
    slots: number,
    cacheBytes: number,
    bytes: number,
  ) {
    super(room, occupant);
    this.#budget = budget;
    this.#room = room;
    this.slots = slots;
    this.cacheBytes = cacheBytes;
    this.bytes = bytes;
  }

  measured(bytes: number): void {
    if (bytes <= this.bytes) return;
    this.bytes = bytes;
    this.#room.settle();
  }

  grow({ fileBytes, workBytes, placesInWords }: MemoryNeeds): void {
    const cacheBytes = workBytes(this.slots);
    const bytes = fileBytes + cacheBytes + processBytes;
    this.#budget.refuseGrowth(this, { bytes, places: placesInWords(this.slots) });
    this.cacheBytes = cacheBytes;
    this.measured(bytes);
  }
}

const sumOf = (claims: readonly Claim[]): number => claims.reduce((sum, { bytes }) => sum + bytes, 0);

/**
 * Returns the memory that the system can provide without swapping, within the container's limit. (Not `process.availableMemory`: there the
 * model file itself counts as used as soon as it was read once.)
 */
function freeBytesNow(): number {
  return Math.min(freemem(), process.constrainedMemory() || Infinity);
}

const cacheShare = 0.25;
const allShare = 0.8;
/** Memory of a model's process without the model: Node, the library, the vocabulary, and the working memory of one step. */
const processBytes = 200e6;
/** The machine's free memory changes without notice. */
const recheckMs = 1000;

function inWords(bytes: number): string {
  const positive = Math.max(0, bytes);
  return positive >= 1e9 ? `${(positive / 1e9).toFixed(1)} GB` : `${Math.ceil(positive / 1e6)} MB`;
}
