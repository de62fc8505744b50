import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DatabaseClock } from '../../src/store/postgres/database-clock.ts';

/** A machine whose time only passes, and a database whose time may also be set. */
function scene(databaseMs: number) {
  let monotonicMs = 500.25;
  const clock = new DatabaseClock(() => monotonicMs);
  return {
    clock,
    pass: (ms: number): void => {
      monotonicMs += ms;
      databaseMs += ms;
    },
    set: (ms: number): void => void (databaseMs += ms),
    /** An answer, `wayMs` there and back again. */
    hear: (wayMs: number): void => {
      const askedMs = monotonicMs;
      monotonicMs += wayMs;
      databaseMs += wayMs;
      const readingMs = Math.floor(databaseMs);
      monotonicMs += wayMs;
      databaseMs += wayMs;
      clock.heard(readingMs, askedMs);
    },
    errorMs: (): number => clock.now() - databaseMs,
  };
}

test('the time is that of the database to within an answer’s way, and narrows with faster answers', () => {
  const { clock, pass, hear, errorMs } = scene(1_700_000_000_000.5);
  assert.throws(() => clock.now(), /has not said/);
  hear(50);
  assert.ok(Math.abs(errorMs()) <= 51);
  for (let heartbeat = 0; heartbeat < 20; heartbeat++) {
    pass(250);
    hear(heartbeat % 5 === 0 ? 200 : 1);
    assert.ok(Math.abs(errorMs()) <= (heartbeat === 0 ? 202 : 3), `${heartbeat}: ${errorMs()}`);
  }
  pass(86_400_000);
  assert.ok(Math.abs(errorMs()) <= 3);
});

test('it never goes back for little, and follows a database whose clock is set', () => {
  const { clock, pass, set, hear, errorMs } = scene(1_700_000_000_000);
  hear(1);
  let last = clock.now();
  const goesOn = (): void => {
    const now = clock.now();
    assert.ok(now >= last);
    last = now;
  };
  set(-5_000);
  for (let heartbeat = 0; heartbeat < 30; heartbeat++) {
    hear(1);
    goesOn();
    pass(250);
    goesOn();
  }
  hear(1);
  assert.ok(Math.abs(errorMs()) <= 3, 'it has waited until the database had caught up');
  set(400 * 86_400_000);
  hear(1);
  goesOn();
  assert.ok(Math.abs(errorMs()) <= 3);
  set(-400 * 86_400_000);
  hear(1);
  assert.ok(Math.abs(errorMs()) <= 3, 'back by more than is waited out');
});
