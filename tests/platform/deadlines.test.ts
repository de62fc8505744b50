import assert from 'node:assert/strict';
import { stat } from 'node:fs';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Deadlines, DeadlinesByLength } from '../../src/platform/deadlines.ts';

test('limits come due after their length, in the order in which they began, and not when they have ended', async () => {
  const deadlines = new Deadlines(60);
  const begunMs = performance.now();
  const due: { readonly name: string; readonly afterMs: number }[] = [];
  const begin = (name: string, leftMs?: number) => {
    const fromMs = performance.now();
    return deadlines.begin(() => due.push({ name, afterMs: performance.now() - fromMs }), leftMs);
  };
  begin('first');
  const ended = begin('ended');
  begin('sooner', 10);
  begin('ended sooner', 10).end();
  await delay(30);
  begin('second');
  ended.end();
  ended.end();
  while (due.length < 3 && performance.now() - begunMs < 10_000) await delay(5);
  await delay(100);
  assert.deepEqual(
    due.map(({ name }) => name),
    ['sooner', 'first', 'second'],
  );
  for (const { name, afterMs } of due)
    assert.ok(afterMs >= (name === 'sooner' ? 8 : 58), `${name} after ${afterMs} ms`);
});

test('a limit may begin or end another while it comes due', async () => {
  const deadlines = new Deadlines(10);
  const due: string[] = [];
  deadlines.begin(() => {
    due.push('first');
    second.end();
    deadlines.begin(() => due.push('third'));
  });
  const second = deadlines.begin(() => due.push('second'));
  for (let look = 0; look < 400 && due.length < 2; look++) await delay(5);
  assert.deepEqual(due, ['first', 'third']);
});

test('what has arrived while the process was held up is read before a limit comes due', async () => {
  const deadlines = new Deadlines(10);
  for (let round = 0; round < 5; round++) {
    const outcome = await new Promise((resolve) => {
      // At the end of a turn of the event loop: the next one begins with the timers.
      setImmediate(() => {
        const limit = deadlines.begin(() => resolve('late'));
        stat('.', () => {
          limit.end();
          resolve('in time');
        });
        const untilMs = performance.now() + 60;
        while (performance.now() < untilMs);
      });
    });
    assert.equal(outcome, 'in time');
  }
});

test('limits of one length share their timer', () => {
  const lengths = new DeadlinesByLength();
  assert.equal(lengths.of(1_000), lengths.of(1_000));
  assert.notEqual(lengths.of(1_000), lengths.of(2_000));
});
