import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { IdleSlots, type SlotCounts } from '../../../src/inference/pipeline/idle-slots.ts';

describe('the slots that are left to batches', () => {
  it('are those beyond as many as let three of four requests of the last four seconds begin at once', () => {
    const counts = { slots: 16, running: 3, waiting: 0, mayStart: false };
    let nowMs = 1_000_000;
    const idle = new IdleSlots(
      () => counts,
      () => nowMs,
    );
    assert.deepEqual([idle.free, idle.isRecent], [13, false]);
    const arrive = (count: number): void => {
      for (let request = 0; request < count; request++) idle.arrived(nowMs);
      nowMs += 50;
    };
    for (let window = 0; window < 12; window++) arrive(1);
    assert.equal(idle.reserve(), 1);
    arrive(4);
    assert.equal(idle.reserve(), 1, 'three of a wave of four wait for a moment: less than a quarter of all');
    arrive(8);
    assert.equal(idle.reserve(), 3, 'of 24 six may wait');
    nowMs += 4_100;
    assert.deepEqual([idle.reserve(), idle.isRecent], [0, true]);
    nowMs += 60_000;
    assert.equal(idle.isRecent, false);
  });

  it('are given back by the line that got its slot last, at a place where the request can run', () => {
    const idle = new IdleSlots<string>(() => ({ slots: 3, running: 3, waiting: 1, mayStart: false }));
    const stopped: string[] = [];
    const ended = ['a', 'b', 'a', 'b'].map((place, at) => idle.sold(place, () => stopped.push(`${place}${at}`)));
    ended[3]!();
    assert.equal(
      idle.release((place) => place === 'b'),
      true,
    );
    assert.equal(
      idle.release((place) => place === 'b'),
      false,
      'each is asked once',
    );
    assert.equal(
      idle.release(() => true),
      true,
    );
    assert.deepEqual(stopped, ['b1', 'a2']);
  });

  it('are not those that are reserved for a tier', () => {
    const idle = new IdleSlots(() => ({ slots: 10, running: 3, waiting: 0, mayStart: false }));
    idle.reservedSlots = 2;
    assert.equal(idle.free, 5);
    const nowMs = performance.now();
    for (let count = 0; count < 5; count++) idle.arrived(nowMs);
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
