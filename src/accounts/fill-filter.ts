import { hashesAtOnce } from '../store/row-facts.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import { KeyFilter } from './key-filter.ts';
import type { UnknownKeys } from './unknown-keys.ts';

const hashBytes = 32;
/** Headroom for keys that are still to be created. */
const room = 1.5;
const capacityMin = 10_000;

/**
 * Reads the hashes of all keys, page by page, into a new filter. Keys created meanwhile, behind the reading position, are noted by the
 * change follower. Rejects when the database does not answer.
 */
export async function fillFilter(
  unknown: UnknownKeys,
  repositories: Pick<Repositories, 'listKeyHashes'>,
  signal: AbortSignal,
): Promise<void> {
  const about = (await estimate(false, repositories)) + (await estimate(true, repositories));
  const filter = new KeyFilter(Math.max(capacityMin, room * Math.max(about, unknown.size)));
  unknown.fill(filter);
  for (const previous of [false, true])
    for (let after: Uint8Array | null = null; !signal.aborted;) {
      const page: Uint8Array = await repositories.listKeyHashes({ previous, after, limit: hashesAtOnce });
      for (let offset = 0; offset < page.length; offset += hashBytes) filter.add(page, offset);
      if (page.length < hashBytes * hashesAtOnce) break;
      after = page.slice(-hashBytes);
    }
  if (!signal.aborted) unknown.filled(filter);
}

/**
 * Estimates the number of hashes within a few per cent: they are effectively random, so a page that reaches a hundredth of the value range
 * has a hundredth of them. Counting them would take a database seconds.
 */
async function estimate(previous: boolean, repositories: Pick<Repositories, 'listKeyHashes'>): Promise<number> {
  const page = await repositories.listKeyHashes({ previous, after: null, limit: hashesAtOnce });
  const hashes = page.length / hashBytes;
  if (hashes < hashesAtOnce) return hashes;
  const last = Buffer.from(page.buffer, page.byteOffset + page.length - hashBytes, hashBytes);
  return hashes / (Math.max(1, last.readUIntBE(0, 6)) / 2 ** 48);
}
