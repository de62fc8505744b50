import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Remembered } from '../../src/platform/remembered.ts';
import { until } from '../support/service.ts';

test('what is remembered is forgotten after its time, and of too much the oldest first', async () => {
  const remembered = new Remembered<number>({ entriesMax: 2, forMs: 60_000 });
  for (const [name, value] of [
    ['a', 1],
    ['b', 2],
    ['a', 3],
    ['c', 4],
  ] as const)
    remembered.set(name, value);
  assert.deepEqual(
    ['a', 'b', 'c'].map((name) => remembered.get(name)),
    [3, undefined, 4],
  );
  const short = new Remembered<number>({ entriesMax: 2, forMs: 1 });
  short.set('a', 1);
  await until(() => short.get('a') === undefined);
  assert.equal(short.size, 0);
});
