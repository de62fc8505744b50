import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { test } from 'node:test';

import { SealKeys } from '../../../src/inference/pipeline/seals.ts';

const keys = (): SealKeys => new SealKeys(createSecretKey(randomBytes(32)), createSecretKey(randomBytes(32)));
const ours = keys();
const thought = 'first this, then that: é 漢 \u{1f600}';
const sealed = (value: string) => ({ value, at: 'messages[0]' });

test('a signature proves its text to the account that it was made for, and no other', () => {
  const signature = ours.for('a').sign(thought);
  assert.equal(ours.open(sealed(signature), thought, 'a'), thought);
  assert.equal(ours.open(sealed(signature), `${thought}.`, 'a'), undefined);
  assert.equal(ours.open(sealed(signature), thought, 'b'), undefined);
  assert.equal(keys().open(sealed(signature), thought, 'a'), undefined);
});

test('an encrypted text comes back whole, to its account alone, whatever stands beside it', () => {
  for (const text of [thought, '', 'x'.repeat(100_000)]) {
    const seal = ours.for('a').encrypt(text);
    assert.ok(text === '' || !Buffer.from(seal.slice(3), 'base64url').includes(text));
    assert.equal(ours.open(sealed(seal), 'anything', 'a'), text);
    assert.equal(ours.open(sealed(seal), '', 'b'), undefined);
    assert.equal(keys().open(sealed(seal), '', 'a'), undefined);
  }
  assert.notEqual(ours.for('a').encrypt(thought), ours.for('a').encrypt(thought));
});

test('what is no seal, or was changed anywhere, opens nothing', () => {
  const foreign = ['', 's1_', 'e1_', 'e1_AAAA', 's1_%%%', 'EqQBCkgIARABGAIiQ', `e1_${'A'.repeat(60)}`, '\0', 'é'];
  for (const value of foreign) assert.equal(ours.open(sealed(value), thought, 'a'), undefined, value);
  for (const seal of [ours.for('a').sign(thought), ours.for('a').encrypt(thought)])
    for (let at = 0; at < seal.length - 1; at++) {
      const other = seal[at] === 'A' ? 'B' : 'A';
      const changed = seal.slice(0, at) + other + seal.slice(at + 1);
      assert.equal(ours.open(sealed(changed), thought, 'a'), undefined, changed);
    }
});
