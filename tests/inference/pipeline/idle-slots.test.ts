import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { IdleSlots, type SlotCounts } from '../../../src/inference/pipeline/idle-slots.ts';

describe('the slots that are left to batches', () => {
  it('are those beyond as many as came in the busiest second of the last minute', () => {
    const counts = { slots: 16, running: 3, waiting: 0, mayStart: false };
    const idle = new IdleSlots(() => counts);
    const nowMs = 1_000 * Math.floor(performance.now() / 1_000);
    assert.equal(idle.free, 13);
    for (const atMs of [0, 10, 1_000, 1_010, 1_020, 5_000]) idle.arrived(nowMs + atMs);
    assert.equal(idle.reserve(nowMs + 6_000), 3);
    assert.equal(idle.reserve(nowMs + 60_900), 3, 'the second is still remembered');
    assert.equal(idle.reserve(nowMs + 63_000), 1);
    assert.equal(idle.reserve(nowMs + 600_000), 0);
  });

  it('are not those that are reserved for a tier', () => {
    const idle = new IdleSlots(() => ({ slots: 10, running: 3, waiting: 0, mayStart: false }));
    idle.reservedSlots = 2;
    assert.equal(idle.free, 5);
    for (let count = 0; count < 4; count++) idle.arrived(performance.now());
    assert.equal(idle.free, 3, 'one reserve serves both');
  });

  it('are one where a server can be started, until a line waits for it', () => {
    const at = (more: Partial<SlotCounts>): number =>
      new IdleSlots(() => ({ slots: 0, running: 0, waiting: 0, mayStart: true, ...more })).free;
    assert.deepEqual([at({}), at({ running: 1 }), at({ waiting: 1 }), at({ mayStart: false })], [1, 0, 0, 0]);
  });

  it('are none while somebody else waits, and whoever watches is told when there are some', () => {
    const counts: { -readonly [Count in keyof SlotCounts]: SlotCounts[Count] } = {
      slots: 2,
      running: 2,
      waiting: 1,
      mayStart: false,
    };
    const idle = new IdleSlots(() => counts);
    let woken = 0;
    const end = idle.watch(() => woken++);
    idle.changed();
    counts.running = 1;
    idle.changed();
    assert.deepEqual([woken, idle.free], [0, 0]);
    counts.waiting = 0;
    idle.changed();
    assert.deepEqual([woken, idle.free], [1, 1]);
    end();
    idle.changed();
    assert.equal(woken, 1);
  });
});
