import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PeerBoard } from '../../../src/platform/peers/peers.ts';

test('each reads what others have sent since it looked last, in their order, and nothing of its own', () => {
  const board = new PeerBoard();
  assert.deepEqual(board.exchange('a', undefined), []);
  assert.deepEqual(board.exchange('b', 'b1'), []);
  assert.deepEqual(board.exchange('b', 'b2'), []);
  assert.deepEqual(board.exchange('c', 'c1'), [], 'who comes later misses what was sent before');
  assert.deepEqual(board.exchange('a', 'a1'), [
    { from: 'b', text: 'b1' },
    { from: 'b', text: 'b2' },
    { from: 'c', text: 'c1' },
  ]);
  assert.deepEqual(board.exchange('a', undefined), []);
  assert.deepEqual(board.exchange('b', undefined), [
    { from: 'c', text: 'c1' },
    { from: 'a', text: 'a1' },
  ]);
});

test('what waits for one that does not look is bounded, and goes when it ends', () => {
  const board = new PeerBoard();
  board.exchange('asleep', undefined);
  board.exchange('awake', undefined);
  for (let index = 0; index < 1_000; index++) board.exchange('awake', String(index));
  const waiting = board.exchange('asleep', undefined);
  assert.ok(waiting.length <= 64, `${waiting.length} wait`);
  assert.equal(waiting.at(-1)?.text, '999');
  for (let index = 0; index < 10; index++) board.exchange('awake', String(index));
  board.drop('asleep');
  assert.deepEqual(board.exchange('asleep', undefined), []);
});
