import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { Admission } from '../../../src/billing/rate-limits/admission.ts';
import type { Slot } from '../../../src/billing/rate-limits/slot.ts';

const large = 1_048_576;

const isRefusal = (error: unknown): boolean => {
  assert.ok(error instanceof ApiError, String(error));
  assert.deepEqual([error.code, error.status, error.retryAfterSeconds], ['backend_at_capacity', 429, 1]);
  return true;
};

const takeAll = (admission: Admission, count: number): Slot[] => Array.from({ length: count }, () => admission.take());

test('as many requests run at once as are allowed, and no more', () => {
  const admission = new Admission(3);
  const [first] = takeAll(admission, 3);
  assert.throws(() => admission.take(), isRefusal);
  assert.throws(() => admission.check(10, large), isRefusal);
  first?.release();
  assert.throws(() => first?.release(), /once/);
  assert.equal(admission.running, 2);
  admission.check(10, large);
  admission.take();
});

test('level 1 refuses large bodies only', () => {
  const admission = new Admission(10);
  admission.judged(1);
  admission.check(large, large);
  admission.check(undefined, large);
  admission.take();
  assert.throws(() => admission.check(large + 1, large), isRefusal);
  admission.judged(0);
  admission.check(large + 1, large);
});

test('level 2 takes no new work while enough is running, less with every look, and always one', () => {
  for (const shedLevel of [2, 3] as const) {
    const admission = new Admission(1000);
    const running = takeAll(admission, 100);
    admission.judged(shedLevel);
    assert.equal(admission.cap, 80);
    assert.throws(() => admission.take(), isRefusal);
    for (let i = 0; i < 30; i++) admission.judged(shedLevel);
    assert.equal(admission.cap, 1);
    for (const one of running) one.release();
    const only = admission.take();
    assert.throws(() => admission.take(), isRefusal);
    only.release();
  }
});

test('when the load is gone everything passes again within four seconds', () => {
  const admission = new Admission(1024);
  for (let i = 0; i < 30; i++) admission.judged(2);
  assert.equal(admission.cap, 1);
  const caps: number[] = [];
  for (let looks = 0; looks < 16; looks++) {
    admission.judged(0);
    caps.push(admission.cap);
  }
  assert.equal(admission.cap, 1024);
  assert.deepEqual(
    caps,
    caps.toSorted((a, b) => a - b),
  );
});

test('while there is still too much work the cap creeps near to what was too much, and hurries below it', () => {
  const admission = new Admission(1024);
  const running = takeAll(admission, 100);
  admission.judged(2);
  assert.equal(admission.cap, 80);
  assert.ok(admission.isShedding);
  const look = (): number => {
    assert.throws(() => admission.take(), isRefusal);
    admission.judged(0);
    return admission.cap;
  };
  const caps: number[] = [];
  for (let looks = 0; looks < 6; looks++) {
    caps.push(look());
    while (running.length < admission.cap) running.push(admission.take());
  }
  assert.ok(caps.at(-1)! <= 100, `${caps.join(' ')}: a fifth in more than a second`);
  // Nobody was refused since the last look: nothing is known to be too much.
  admission.judged(0);
  assert.ok(admission.cap > 1.4 * caps.at(-1)!);
});

test('while large bodies are under way they are blamed for the load, for ten seconds, and for no lack of memory', () => {
  const admission = new Admission(1000);
  const one = admission.takeLarge(large + 1, large);
  const other = admission.takeLarge(large + 1, large);
  admission.take();
  for (let look = 0; look < 40; look++) {
    admission.judged(2);
    assert.equal(admission.shedLevel, 1);
    assert.throws(() => admission.check(large + 1, large), isRefusal);
    admission.take();
  }
  admission.judged(2);
  assert.throws(() => admission.take(), isRefusal);
  // Nor may they be blamed again before the load was gone.
  admission.judged(1);
  admission.judged(2);
  assert.equal(admission.shedLevel, 2);

  const calm = new Admission(1000);
  const third = calm.takeLarge(large + 1, large);
  calm.take();
  calm.judged(2, true);
  assert.throws(() => calm.take(), isRefusal);
  calm.judged(0);
  third.release();
  for (let look = 0; look < 20; look++) calm.judged(0);
  calm.judged(2);
  assert.equal(calm.shedLevel, 2, 'nobody is there to blame');
  one.release();
  other.release();
  assert.throws(() => other.release(), /once/);
});
