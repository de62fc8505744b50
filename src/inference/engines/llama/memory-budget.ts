import { freemem } from 'node:os';
import type { UnloadReason } from './child-process.ts';
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

/** A model's engine, as the budget sees it. */
export interface Occupant {
  /** Whether it stays in memory once loaded. */
  readonly isPinned: boolean;
  /** Whether it has no work. */
  readonly isIdle: boolean;
  /** When it last had work. */
  readonly usedMs: number;
  /** Called when there is room: it loads, or continues. */
  enter(): void;
  /** Called when another model waits: it finishes what it has begun, and begins nothing new. */
  hold(): void;
  /** Resolves when it has left memory completely. */
  leave(reason: UnloadReason): Promise<void>;
  /** Whether requests have come for it since it had to make room. */
  readonly isWanted: boolean;
}

/** A model's memory, until it is released. */
export interface MemoryClaim {
  readonly slots: number;
  readonly cacheBytes: number;
  /** Total memory, by its header or by measurement, whichever is more. */
  readonly bytes: number;
  /** Whether it waits for room. */
  readonly isWaiting: boolean;
  /** Enters when there is room; idle models make room immediately, busy ones after their turn. First come, first served. */
  request(): void;
  /** Enters now if there is room and no other model waits; returns whether it has. */
  requestIfFree(): boolean;
  /** Called when it is loaded: its turn begins. */
  loaded(): void;
  /** Leaves although no other model waits, because it has no requests. */
  leave(): void;
  /** Stops waiting. */
  withdraw(): void;
  /** Called when it has become idle. */
  idle(): void;
  /** Records a measured memory use. */
  measured(bytes: number): void;
  /** Declares its needs from now on, with its present slots; throws `ModelRefused` if they do not fit even alone. */
  grow(needs: MemoryNeeds): void;
  release(): void;
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
  readonly #turnMs: number;
  readonly #isCacheConfigured: boolean;
  readonly #isConfigured: boolean;
  /** In the order in which they were registered, or started to wait. */
  readonly #claims = new Set<Claim>();
  #modelsToCome: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: MemoryBudgetOptions) {
    const { bytesMax, cacheBytesMax, models, freeBytes = freeBytesNow, turnMs = 10_000 } = options;
    const freeFirst = freeBytes();
    this.#freeBytes = freeBytes;
    this.#turnMs = turnMs;
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
    const claim = new Claim(this, occupant, slots, cacheBytes, bytes);
    this.#claims.add(claim);
    return claim;
  }

  /** Throws what `register` would throw. */
  refuseTooLarge(needs: MemoryNeeds): void {
    this.#sizeOf(needs);
  }

  #sizeOf({ fileBytes, slots: wanted, workBytes, placesInWords }: MemoryNeeds) {
    const claims = [...this.#claims];
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
      [...this.#claims].filter((each) => each !== claim),
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

  requested(claim: Claim): void {
    if (claim.place.kind !== 'out') return;
    claim.place = { kind: 'waiting' };
    // Moves to the end of the queue.
    this.#claims.delete(claim);
    this.#claims.add(claim);
    this.settle();
  }

  isFreeFor(claim: Claim): boolean {
    return this.#waiting() === undefined && this.#fits(claim, []);
  }

  forget(claim: Claim): void {
    this.#claims.delete(claim);
    claim.place = { kind: 'out' };
    this.settle();
  }

  /** Admits waiting models, or makes room for them. */
  settle(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (let next = this.#waiting(); next !== undefined; next = this.#waiting()) {
      if (!this.#fits(next, [])) return this.#makeRoom(next);
      next.enter();
    }
    for (const claim of this.#claims)
      if (claim.place.kind === 'in' && claim.place.isHeld) {
        claim.place = { ...claim.place, isHeld: false };
        claim.occupant.enter();
      }
    this.#unloadExcess();
  }

  #waiting(): Claim | undefined {
    return [...this.#claims].find(({ place }) => place.kind === 'waiting');
  }

  /** Returns whether the model fits once the models in `without` have left. */
  #fits(claim: Claim, without: readonly Claim[]): boolean {
    const others = this.#resident().filter((each) => !without.includes(each));
    const cacheBytes = others.reduce((sum, each) => sum + each.cacheBytes, 0) + claim.cacheBytes;
    if (cacheBytes > this.#cacheBytesMax || sumOf(others) + claim.bytes > this.#bytesMax) return false;
    // The system does not yet reflect memory that is being loaded or was just freed. A model that is alone is always admitted.
    return others.length === 0 || claim.bytes <= this.#freeBytes() + sumOf(without);
  }

  #resident(): readonly Claim[] {
    return [...this.#claims].filter(({ place }) => place.kind === 'in' || place.kind === 'leaving');
  }

  #makeRoom(next: Claim): void {
    const leaving = this.#resident().filter(({ place }) => place.kind === 'leaving');
    const isEnough = (): boolean => this.#fits(next, leaving);
    for (const idle of this.#victims().filter(({ occupant }) => occupant.isIdle)) {
      if (isEnough()) return;
      leaving.push(idle);
      this.makeLeave(idle);
    }
    const nowMs = performance.now();
    let waitMs = recheckMs;
    for (const busy of this.#victims().toSorted((a, b) => sinceOf(a) - sinceOf(b))) {
      if (isEnough()) break;
      leaving.push(busy);
      const turnLeftMs = sinceOf(busy) + this.#turnMs - nowMs;
      if (turnLeftMs > 0) waitMs = Math.min(waitMs, turnLeftMs);
      else if (busy.place.kind === 'in' && !busy.place.isHeld) {
        busy.place = { ...busy.place, isHeld: true };
        busy.occupant.hold();
      }
    }
    this.#timer = setTimeout(() => this.settle(), waitMs);
    this.#timer.unref();
  }

  /** Returns the models that may have to leave, the least recently used first. */
  #victims(): readonly Claim[] {
    return [...this.#claims]
      .filter(({ place, occupant }) => place.kind === 'in' && !occupant.isPinned)
      .sort((a, b) => a.occupant.usedMs - b.occupant.usedMs);
  }

  /** Unloads idle models when the resident ones turn out to take more than their headers say. */
  #unloadExcess(): void {
    for (const idle of this.#victims().filter(({ occupant }) => occupant.isIdle)) {
      const staying = this.#resident().filter(({ place }) => place.kind === 'in');
      if (sumOf(staying) <= this.#bytesMax || staying.length < 2) return;
      this.makeLeave(idle);
    }
  }

  makeLeave(claim: Claim, reason: UnloadReason = 'room'): void {
    claim.place = { kind: 'leaving' };
    void claim.occupant.leave(reason).then(() => {
      if (claim.place.kind !== 'leaving') return;
      claim.place = { kind: 'out' };
      if (claim.occupant.isWanted) this.requested(claim);
      else this.settle();
    });
  }
}

type Place =
  | { readonly kind: 'out' }
  | { readonly kind: 'waiting' }
  /** `sinceMs`: when it was loaded; infinite until then, so that it has its turn however long loading takes. */
  | { readonly kind: 'in'; readonly sinceMs: number; readonly isHeld: boolean }
  | { readonly kind: 'leaving' };

class Claim implements MemoryClaim {
  readonly #budget: MemoryBudget;
  readonly occupant: Occupant;
  readonly slots: number;
  cacheBytes: number;
  bytes: number;
  place: Place = { kind: 'out' };

  constructor(budget: MemoryBudget, occupant: Occupant, slots: number, cacheBytes: number, bytes: number) {
    this.#budget = budget;
    this.occupant = occupant;
    this.slots = slots;
    this.cacheBytes = cacheBytes;
    this.bytes = bytes;
  }

  get isWaiting(): boolean {
    return this.place.kind === 'waiting';
  }

  enter(): void {
    this.place = { kind: 'in', sinceMs: Infinity, isHeld: false };
    this.occupant.enter();
  }

  request(): void {
    this.#budget.requested(this);
  }

  requestIfFree(): boolean {
    if (this.place.kind !== 'out' || !this.#budget.isFreeFor(this)) return false;
    this.enter();
    return true;
  }

  loaded(): void {
    if (this.place.kind === 'in') this.place = { ...this.place, sinceMs: performance.now() };
  }

  leave(): void {
    if (this.place.kind === 'in') this.#budget.makeLeave(this, 'idle');
  }

  withdraw(): void {
    if (!this.isWaiting) return;
    this.place = { kind: 'out' };
    this.#budget.settle();
  }

  idle(): void {
    if (this.place.kind === 'in') this.#budget.settle();
  }

  measured(bytes: number): void {
    if (bytes <= this.bytes) return;
    this.bytes = bytes;
    this.#budget.settle();
  }

  grow({ fileBytes, workBytes, placesInWords }: MemoryNeeds): void {
    const cacheBytes = workBytes(this.slots);
    const bytes = fileBytes + cacheBytes + processBytes;
    this.#budget.refuseGrowth(this, { bytes, places: placesInWords(this.slots) });
    this.cacheBytes = cacheBytes;
    this.measured(bytes);
  }

  release(): void {
    this.#budget.forget(this);
  }
}

const sumOf = (claims: readonly Claim[]): number => claims.reduce((sum, { bytes }) => sum + bytes, 0);

const sinceOf = ({ place }: Claim): number => (place.kind === 'in' ? place.sinceMs : 0);

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
