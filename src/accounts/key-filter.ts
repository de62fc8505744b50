/**
 * A set of hashes with false positives but no false negatives: a Bloom filter in blocks of one cache line, so that a lookup reads memory
 * once. The hashes are keyed (accounts/key.ts), so they are effectively random, and nobody outside can choose one to collide: their own
 * bits are the positions.
 */
export class KeyFilter {
  readonly #words: Uint32Array;
  readonly #blocks: number;
  readonly #capacity: number;
  #size = 0;

  /** Sized for about this many hashes: up to that, at most one in 150 absent hashes is a false positive; beyond it, more and more. */
  constructor(capacity: number) {
    this.#capacity = capacity;
    this.#blocks = Math.max(1, Math.min(Math.ceil((capacity * bitsPerHash) / bitsPerBlock), blocksMax));
    this.#words = new Uint32Array(this.#blocks * wordsPerBlock);
  }

  /** Number of added hashes that were not positive before: nearly all of them. */
  get size(): number {
    return this.#size;
  }

  /** Whether it has too many false positives for its capacity, so that a larger one should replace it. */
  get isOverfull(): boolean {
    return this.#size > this.#capacity && this.#blocks < blocksMax;
  }

  /** Adds the hash of 32 bytes at an offset. */
  add(hashes: Uint8Array, offset = 0): void {
    const block = this.#blockOf(hashes, offset);
    let isNew = false;
    for (let probe = 0; probe < probes; probe++) {
      const bit = bitOf(hashes, offset, probe);
      const word = block + (bit >>> 5);
      const before = this.#words[word]!;
      const after = (before | (1 << (bit & 31))) >>> 0;
      if (after === before) continue;
      this.#words[word] = after;
      isNew = true;
    }
    if (isNew) this.#size++;
  }

  has(hashes: Uint8Array, offset = 0): boolean {
    const block = this.#blockOf(hashes, offset);
    for (let probe = 0; probe < probes; probe++) {
      const bit = bitOf(hashes, offset, probe);
      if ((this.#words[block + (bit >>> 5)]! & (1 << (bit & 31))) === 0) return false;
    }
    return true;
  }

  #blockOf(hashes: Uint8Array, offset: number): number {
    // Uses the last bytes, because pages of sorted hashes, which fill a filter, share their first ones.
    const high = hashes[offset + 28]! * 2 ** 24 + hashes[offset + 29]! * 2 ** 16;
    const random = high + hashes[offset + 30]! * 2 ** 8 + hashes[offset + 31]!;
    return Math.floor((random / 2 ** 32) * this.#blocks) * wordsPerBlock;
  }
}

/** 15 MB for ten million. */
const bitsPerHash = 12;
const bitsPerBlock = 512;
const wordsPerBlock = bitsPerBlock / 32;
const probes = 8;
/** 64 MiB: enough for 45 million keys at that error rate. */
const blocksMax = 2 ** 20;

/** Nine bits of the hash for each probe, from two bytes that no other probe reads. */
const bitOf = (hashes: Uint8Array, offset: number, probe: number): number => {
  const at = offset + 8 + 2 * probe;
  return ((hashes[at]! << 8) | hashes[at + 1]!) & (bitsPerBlock - 1);
};
