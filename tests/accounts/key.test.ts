import fc from 'fast-check';
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { base62Alphabet, newAccountId, newKeyId, randomBase62, toBase62 } from '../../src/accounts/base62.ts';
import { displayOf, hashKey, issueKey, lookUpHash, newKey, parseKey } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-key-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const secret = openSecret({ fromEnvironment: 'x'.repeat(32), dataFolder: folder, warn: assert.fail });

test('a new key has the documented form and is recognised', () => {
  const keys = new Set(Array.from({ length: 2000 }, newKey));
  assert.equal(keys.size, 2000);
  for (const key of keys) {
    assert.match(key, /^tkh_[0-9A-Za-z]{38}$/);
    assert.equal(parseKey(key), key);
  }
  assert.ok(32 * Math.log2(62) >= 190);
});

test('every character of a key is drawn evenly', () => {
  const text = randomBase62(62 * 4000);
  const counts = new Map<string, number>();
  for (const character of text) counts.set(character, (counts.get(character) ?? 0) + 1);
  assert.deepEqual([...counts.keys()].sort(), [...base62Alphabet].sort());
  // 4,000 expected, deviation 63: folding 62 and 63 back would give two characters 6,000.
  for (const [character, count] of counts) assert.ok(Math.abs(count - 4000) < 500, `${character}: ${count}`);
});

test('each change of one character, each swap of neighbours, each cut is noticed', () => {
  const key = newKey();
  for (let index = 0; index < key.length; index++) {
    for (const character of `${base62Alphabet}_-. é`) {
      if (character === key[index]) continue;
      assert.equal(parseKey(key.slice(0, index) + character + key.slice(index + 1)), undefined);
    }
    assert.equal(parseKey(key.slice(0, index)), undefined);
    const swapped =
      key.slice(0, index) +
      key
        .slice(index, index + 2)
        .split('')
        .reverse()
        .join('') +
      key.slice(index + 2);
    if (swapped !== key) assert.equal(parseKey(swapped), undefined);
  }
});

test('junk is refused, whatever it is', () => {
  for (const junk of [
    '',
    'tkh_',
    'sk-1234',
    ` ${newKey()}`,
    `${newKey()} `,
    `${newKey()}\n`,
    newKey().toUpperCase(),
    'tkh_'.repeat(100_000),
  ]) {
    assert.equal(parseKey(junk), undefined);
  }
  fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 60 }), (text) => parseKey(text) === undefined));
  fc.assert(
    fc.property(fc.stringMatching(/^tkh_[0-9A-Za-z]{38}$/), (text) => parseKey(text) === undefined),
    { numRuns: 2000 }, // one in 4 billion of these is a key
  );
});

test('the hash is HMAC-SHA-256 with the pepper, the same for the row and for the look-up', () => {
  const key = newKey();
  const expected = createHmac('sha256', secret.pepper).update(key).digest();
  assert.deepEqual(Buffer.from(hashKey(key, secret)), expected);
  assert.equal(lookUpHash(key, secret), expected.toString('latin1'));
  const other = openSecret({ fromEnvironment: 'y'.repeat(32), dataFolder: folder, warn: assert.fail });
  assert.notDeepEqual(hashKey(key, other), hashKey(key, secret));
  assert.notEqual(other.id, secret.id);
});

test('the row of a key does not hold the key', () => {
  const { text, row } = issueKey({ accountId: 'acct_a', name: 'first', secret, now: 5 });
  assert.equal(row.display, `tkh_…${text.slice(-4)}`);
  assert.equal(displayOf(text), row.display);
  assert.equal(row.hash.length, 32);
  assert.ok(!JSON.stringify({ ...row, hash: Buffer.from(row.hash).toString('latin1') }).includes(text.slice(4, 20)));
  assert.match(row.id, /^key_[0-9A-Za-z]{12}$/);
  assert.match(newAccountId(), /^acct_[0-9A-Za-z]{12}$/);
  assert.notEqual(newKeyId(), newKeyId());
});

test('base62 numbers have their width and their order', () => {
  assert.equal(toBase62(0, 6), '000000');
  assert.equal(toBase62(61, 2), '0z');
  assert.equal(toBase62(62, 2), '10');
  assert.equal(toBase62(2 ** 32 - 1, 6), '4gfFC3');
});
