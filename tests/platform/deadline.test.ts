import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';

import { orAborted, withDeadline } from '../../src/platform/deadline.ts';

const longMs = 3_600_000;
const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
const never = (): Promise<never> => new Promise(() => {});

test('an outcome in time is the outcome, and leaves no timer', async () => {
  const before = timers();
  assert.equal(await withDeadline(Promise.resolve(1), longMs, () => 2), 1);
  await assert.rejects(
    withDeadline(Promise.reject(new Error('no')), longMs, () => 2),
    /^Error: no$/,
  );
  assert.equal(timers(), before);
});

test('after the deadline it is what the caller says, and the outcome is ignored, even a rejection', async () => {
  assert.equal(await withDeadline(never(), 1, () => 2), 2);
  let fail = (_error: Error): void => {};
  const late = withDeadline(new Promise<number>((_resolve, reject) => (fail = reject)), 1, () => {
    throw new RangeError('late');
  });
  await assert.rejects(late, RangeError);
  fail(new Error('unhandled, unless someone has taken it'));
  await new Promise((resolve) => setImmediate(resolve));
});

test('an abort ends the wait with its reason, before or during it, and leaves no listener', async () => {
  const reason = new Error('left');
  await assert.rejects(orAborted(never(), AbortSignal.abort(reason)), reason);
  const leaving = new AbortController();
  const waiting = orAborted(never(), leaving.signal);
  leaving.abort(reason);
  await assert.rejects(waiting, reason);
  const { signal } = new AbortController();
  assert.equal(await orAborted(Promise.resolve(1), signal), 1);
  await assert.rejects(orAborted(Promise.reject(new Error('no')), signal), /^Error: no$/);
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});
