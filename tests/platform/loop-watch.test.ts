// Alone in its process: it measures the event loop, which other tests keep busy.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { LoopWatch } from '../../src/platform/loop-watch.ts';
import { until } from '../support/service.ts';

const block = (ms: number): void => {
  const endAt = performance.now() + ms;
  while (performance.now() < endAt);
};

test('a loop in which nothing runs is looked at once a second, and one that is woken or busy fifty times', async (t) => {
  const loop = new LoopWatch();
  t.after(() => loop.stop());
  let isBusy = true;
  let looks = 0;
  loop.onLook(() => (looks++, isBusy));
  await until(() => looks >= 12, 60_000);
  assert.equal(loop.rests, false, 'who looks says that there is work');

  isBusy = false;
  await until(() => loop.rests, 60_000);
  loop.delays.reset();
  looks = 0;
  const startedAtMs = performance.now();
  await until(() => looks >= 2, 60_000);
  const seconds = (performance.now() - startedAtMs) / 1_000;
  assert.ok(loop.delays.count <= Math.ceil(seconds) + 1, `${loop.delays.count} ticks in ${seconds} s`);

  loop.wake();
  assert.equal(loop.rests, false);
  await sleep(40);
  block(300);
  await until(() => loop.delays.max >= 200e6, 60_000);

  await until(() => loop.rests, 60_000);
  let ends = false;
  t.after(() => (ends = true));
  const work = (): void => {
    block(20);
    if (!ends) setImmediate(work);
  };
  work();
  await until(() => !loop.rests, 60_000);
});
