import assert from 'node:assert/strict';
import { test } from 'node:test';

import { abortSignalOf, StopSlot } from '../../src/platform/stop-signal.ts';
import type { StopSignal } from '../../src/platform/stop-signal.ts';

/** What a listener is promised, of the slot and of Node's own signal. */
const kinds: Readonly<Record<string, () => { readonly signal: StopSignal; stop(reason: string): void }>> = {
  'a stop slot': () => {
    const slot = new StopSlot<string>();
    return { signal: slot, stop: (reason) => slot.stop(reason) };
  },
  'an AbortController': () => {
    const controller = new AbortController();
    return { signal: controller.signal, stop: (reason) => controller.abort(reason) };
  },
  'the AbortSignal of a stop slot': () => {
    const slot = new StopSlot<string>();
    return { signal: abortSignalOf(slot), stop: (reason) => slot.stop(reason) };
  },
};

for (const [name, make] of Object.entries(kinds)) {
  test(`${name} stops once, with the first reason, and calls each listener once`, () => {
    const { signal, stop } = make();
    const calls: string[] = [];
    const removed = (): void => void calls.push('removed before');
    const second = (): void => void calls.push('second');
    signal.addEventListener('abort', removed);
    signal.addEventListener('abort', () => {
      calls.push(`first ${String(signal.reason)}`);
      signal.removeEventListener('abort', third);
    });
    signal.addEventListener('abort', second, { once: true });
    const third = (): void => void calls.push('removed by the first');
    signal.addEventListener('abort', third);
    signal.removeEventListener('abort', removed);
    assert.deepEqual([signal.aborted, signal.reason], [false, undefined]);
    signal.throwIfAborted();

    stop('left');
    stop('deadline');
    signal.addEventListener('abort', () => calls.push('too late'));
    assert.deepEqual(calls, ['first left', 'second']);
    assert.deepEqual([signal.aborted, signal.reason], [true, 'left']);
    assert.throws(
      () => signal.throwIfAborted(),
      (error) => error === 'left',
    );
  });
}

test('a slot has one AbortSignal, also when it has been stopped before', () => {
  const slot = new StopSlot<string>();
  assert.equal(abortSignalOf(slot), abortSignalOf(slot));
  slot.stop('left');
  assert.equal(abortSignalOf(slot).reason, 'left');
  const stopped = new StopSlot<string>();
  stopped.stop('gone');
  assert.equal(abortSignalOf(stopped).reason, 'gone');
  const { signal } = new AbortController();
  assert.equal(abortSignalOf(signal), signal);
});
