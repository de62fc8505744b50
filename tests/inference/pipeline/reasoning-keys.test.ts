import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { test } from 'node:test';

import { ReasoningKeys } from '../../../src/inference/pipeline/reasoning-keys.ts';

const keys = (): ReasoningKeys => new ReasoningKeys(createSecretKey(randomBytes(32)), createSecretKey(randomBytes(32)));
const ours = keys();
const thought = 'first this, then that: é 漢 \u{1f600}';
const returned = (value: string) => ({ value, at: 'messages[0]' });

test('a signature proves its text to the account that it was made for, and no other', () => {
  const signature = ours.for('a').sign(thought);
  assert.equal(ours.open(returned(signature), thought, 'a'), thought);
  assert.equal(ours.open(returned(signature), `${thought}.`, 'a'), undefined);
  assert.equal(ours.open(returned(signature), thought, 'b'), undefined);
  assert.equal(keys().open(returned(signature), thought, 'a'), undefined);
});

test('an encrypted text comes back whole, to its account alone, whatever stands beside it', () => {
  for (const text of [thought, '', 'x'.repeat(100_000)]) {
    const signature = ours.for('a').encrypt(text);
    assert.ok(text === '' || !Buffer.from(signature.slice(3), 'base64url').includes(text));
    assert.equal(ours.open(returned(signature), 'anything', 'a'), text);
    assert.equal(ours.open(returned(signature), '', 'b'), undefined);
    assert.equal(keys().open(returned(signature), '', 'a'), undefined);
  }
  assert.notEqual(ours.for('a').encrypt(thought), ours.for('a').encrypt(thought));
});

test('what is no signature of ours, or was changed anywhere, opens nothing', () => {
  const foreign = ['', 's1_', 'e1_', 'e1_AAAA', 's1_%%%', 'EqQBCkgIARABGAIiQ', `e1_${'A'.repeat(60)}`, '\0', 'é'];
  for (const value of foreign) assert.equal(ours.open(returned(value), thought, 'a'), undefined, value);
  for (const signature of [ours.for('a').sign(thought), ours.for('a').encrypt(thought)])
    for (let at = 0; at < signature.length - 1; at++) {
      const other = signature[at] === 'A' ? 'B' : 'A';
      const changed = signature.slice(0, at) + other + signature.slice(at + 1);
      assert.equal(ours.open(returned(changed), thought, 'a'), undefined, changed);
    }
});
