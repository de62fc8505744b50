import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { fillFilter } from '../../src/accounts/fill-filter.ts';
import { KeyFilter } from '../../src/accounts/key-filter.ts';
import { UnknownKeys } from '../../src/accounts/unknown-keys.ts';

const hashBytes = 32;
const hashes = (count: number): Buffer => randomBytes(hashBytes * count);
const eachOf = (bytes: Uint8Array): readonly number[] =>
  Array.from({ length: bytes.length / hashBytes }, (_, index) => index * hashBytes);

test('a filter never denies a hash that it has, and seldom has one that it was not given, up to its capacity', () => {
  const count = 200_000;
  const filter = new KeyFilter(count);
  const [own, others] = [hashes(count), hashes(count)];
  for (const offset of eachOf(own)) filter.add(own, offset);
  assert.ok(eachOf(own).every((offset) => filter.has(own, offset)));
  const wrong = eachOf(others).filter((offset) => filter.has(others, offset)).length / count;
  assert.ok(wrong < 0.008, `${wrong} of the others`);
  assert.ok(filter.size > 0.99 * count && filter.size <= count);
  assert.equal(filter.isOverfull, false);
  for (const offset of eachOf(others)) filter.add(others, offset);
  assert.equal(filter.isOverfull, true);
});

/** Keys of a database, in the order of their hashes. */
function table(keys: Uint8Array, previous: Uint8Array) {
  const sorted = (bytes: Uint8Array) =>
    Buffer.concat(
      eachOf(bytes)
        .map((offset) => Buffer.from(bytes.subarray(offset, offset + hashBytes)))
        .toSorted(Buffer.compare),
    );
  const all = new Map([
    [false, sorted(keys)],
    [true, sorted(previous)],
  ]);
  let pages = 0;
  return {
    pages: () => pages,
    listKeyHashes: (request: { previous: boolean; after: Uint8Array | null; limit: number }) => {
      pages++;
      const rows = all.get(request.previous)!;
      const { after } = request;
      const from =
        after === null
          ? 0
          : eachOf(rows).findIndex((offset) => Buffer.compare(rows.subarray(offset, offset + hashBytes), after) > 0) *
            hashBytes;
      return Promise.resolve(from < 0 ? new Uint8Array() : rows.subarray(from, from + hashBytes * request.limit));
    },
  };
}

const textOf = (bytes: Uint8Array, offset: number): string =>
  Buffer.from(bytes.subarray(offset, offset + hashBytes)).toString('latin1');

test('what was read into the filter, and what was created while it was read, is known; nearly nothing else is', async () => {
  const [keys, previous, created, others] = [hashes(23_456), hashes(6_000), hashes(100), hashes(5_000)];
  const database = table(keys, previous);
  const unknown = new UnknownKeys();
  let next = 0;
  const noting = {
    listKeyHashes: (request: Parameters<typeof database.listKeyHashes>[0]) => {
      // A page after the first ones, which only estimate.
      if (database.pages() > 2 && next < 100) unknown.noteKey(textOf(created, hashBytes * next++));
      return database.listKeyHashes(request);
    },
  };
  assert.equal(unknown.has(textOf(others, 0)), false, 'not before it is filled');
  unknown.noteAbsent(textOf(keys, 0));
  assert.equal(unknown.has(textOf(keys, 0)), true);
  await fillFilter(unknown, noting, new AbortController().signal);
  unknown.noteKey(textOf(keys, 0));
  assert.ok(unknown.isComplete);
  assert.ok(next > 0);
  for (const bytes of [keys, previous, created.subarray(0, hashBytes * next)])
    assert.ok(eachOf(bytes).every((offset) => !unknown.has(textOf(bytes, offset))));
  const known = eachOf(others).filter((offset) => !unknown.has(textOf(others, offset))).length;
  assert.ok(known < 60, `${known} of 5000`);
});

test('a filter that is being read when all is forgotten is not used', async () => {
  const database = table(hashes(12_000), hashes(0));
  const unknown = new UnknownKeys();
  const forgetting = {
    listKeyHashes: (request: Parameters<typeof database.listKeyHashes>[0]) => {
      if (database.pages() === 3) unknown.forget();
      return database.listKeyHashes(request);
    },
  };
  await fillFilter(unknown, forgetting, new AbortController().signal);
  assert.equal(unknown.isComplete, false);
  assert.equal(unknown.has(textOf(hashes(1), 0)), false);
});

test('keys that were looked for in vain are remembered up to a bound, the newest ones', () => {
  const unknown = new UnknownKeys();
  for (let index = 0; index < 60_000; index++) unknown.noteAbsent(String(index));
  assert.deepEqual(
    ['0', '9999', '10000', '59999'].map((hash) => unknown.has(hash)),
    [false, false, true, true],
  );
});
