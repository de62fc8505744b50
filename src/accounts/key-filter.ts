/**
 * A set of hashes that may say yes to one that is not in it, never no to one that is: a Bloom filter in blocks of one cache line,
 * so that a question reads memory once. The hashes are keyed (accounts/key.ts), so they are as good as random, and nobody outside
 * can choose one to collide: their own bits are the positions.
 */
export class KeyFilter {
  readonly #words: Uint32Array;
  readonly #blocks: number;
  readonly #capacity: number;
  #size = 0;

  /** For about this many hashes: then it says yes to one in 150 others at most, and to more and more beyond. */
  constructor(capacity: number) {
    this.#capacity = capacity;
    this.#blocks = Math.max(1, Math.min(Math.ceil((capacity * bitsPerHash) / bitsPerBlock), blocksMax));
    this.#words = new Uint32Array(this.#blocks * wordsPerBlock);
  }

  /** Hashes that it did not say yes to before they were added: nearly all of them. */
  get size(): number {
    return this.#size;
  }

  /** It says yes too often for its capacity: a larger one should take its place. */
  get isOverfull(): boolean {
    return this.#size > this.#capacity && this.#blocks < blocksMax;
  }

  /** The hash of 32 bytes at an offset. */
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
    // The last bytes: pages of hashes in their order, which fill a filter, have the same first ones.
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
/** 64 MiB: enough for 45 million keys at that rate of errors. */
const blocksMax = 2 ** 20;

/** Nine bits of the hash for each probe, from two bytes that no other probe reads. */
const bitOf = (hashes: Uint8Array, offset: number, probe: number): number => {
  const at = offset + 8 + 2 * probe;
  return ((hashes[at]! << 8) | hashes[at + 1]!) & (bitsPerBlock - 1);
};
