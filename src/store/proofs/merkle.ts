/** Merkle trees as in RFC 6962 §2.1: SHA-256, with a first byte that keeps leaves and inner nodes apart. */
import { hash } from 'node:crypto';

/** The hash of a leaf: of a byte 0 and the text. 32 bytes. */
export const leafHash = (text: string): Uint8Array => hash('sha256', `\0${text}`, 'buffer');

function nodeHash(left: Uint8Array, right: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(65);
  bytes[0] = 1;
  bytes.set(left, 1);
  bytes.set(right, 33);
  return hash('sha256', bytes, 'buffer');
}

/** The root above these hashes of leaves, or of whole subtrees of one size of which only the last may be smaller. */
export function treeRoot(hashes: readonly Uint8Array[], from = 0, to = hashes.length): Uint8Array {
  if (from === to) return hash('sha256', '', 'buffer');
  if (to - from === 1) return hashes[from]!;
  const middle = from + splitOf(to - from);
  return nodeHash(treeRoot(hashes, from, middle), treeRoot(hashes, middle, to));
}

/** A sibling on the way from a leaf to the root: `L:` or `R:`, the side that it is on, and its hash in hex. */
export type PathStep = string;

/** The siblings from the leaf at `index` to the root. */
export function auditPath(hashes: readonly Uint8Array[], index: number): readonly PathStep[] {
  const steps: PathStep[] = [];
  let [from, to] = [0, hashes.length];
  while (to - from > 1) {
    const middle = from + splitOf(to - from);
    const isLeft = index < middle;
    steps.push(isLeft ? `R:${hex(treeRoot(hashes, middle, to))}` : `L:${hex(treeRoot(hashes, from, middle))}`);
    [from, to] = isLeft ? [from, middle] : [middle, to];
  }
  return steps.reverse();
}

/** The root that a leaf and its path lead to. */
export function rootOfPath(leaf: Uint8Array, path: readonly PathStep[]): Uint8Array {
  return path.reduce((below: Uint8Array, step) => {
    const sibling = Buffer.from(step.slice(2), 'hex');
    return step.startsWith('L:') ? nodeHash(sibling, below) : nodeHash(below, sibling);
  }, leaf);
}

/** Whether a path has the sides that some leaf of a tree of this size has. */
export function isPathIn(size: number, path: readonly PathStep[]): boolean {
  let below = size;
  for (const step of path.toReversed()) {
    if (!(below > 1 && below <= 2 ** 31)) return false;
    const left = splitOf(below);
    below = step.startsWith('L:') ? below - left : left;
  }
  return below === 1;
}

/** The largest power of two below `size`. */
const splitOf = (size: number): number => 2 ** (31 - Math.clz32(size - 1));

export const hex = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
