import type { Occupant } from '../../../../src/inference/engines/shared-room.ts';
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  MemoryBudget,
  type MemoryBudgetOptions,
  type MemoryClaim,
} from '../../../../src/inference/engines/llama/memory-budget.ts';
import { memoryNeedsOf } from '../../../../src/inference/engines/llama/memory-needs.ts';
import { ModelRefused } from '../../../../src/inference/engines/llama/model-refused.ts';

const shape = { layers: 2, width: 64, innerWidth: 128, heads: 4 };
interface Needs {
  readonly fileBytes: number;
  readonly cacheBytesPerToken: number;
  readonly contextLength: number;
  readonly slots: number | undefined;
}
const needsOf = ({ fileBytes, cacheBytesPerToken, contextLength, slots }: Needs) =>
  memoryNeedsOf(
    { fileBytes, cacheBytesPerToken, shape, isCausal: true, pooling: undefined },
    { purpose: 'write', contextLength, slots },
  );
const model: Needs = { fileBytes: 800e6, cacheBytesPerToken: 10_000, contextLength: 1000, slots: undefined };
const slotBytes = 10e6;
/** What a process takes without its model. */
const processBytes = 200e6;
const refused = (words: RegExp) => (error: unknown) => error instanceof ModelRefused && words.test(error.message);
const budgetOf = (options: Partial<MemoryBudgetOptions> & { readonly free?: number } = {}): MemoryBudget =>
  new MemoryBudget({ cacheBytesMax: undefined, models: 1, freeBytes: () => options.free ?? 100e9, ...options });

/** A model without an engine: what it was asked to do, and what it does only when the test says so. */
class Guest implements Occupant {
  readonly isPinned: boolean;
  isIdle = true;
  isWanted = false;
  usedMs = 0;
  state: 'out' | 'in' | 'held' | 'leaving' = 'out';
  #left: () => void = () => {};
  readonly claim: MemoryClaim;

  constructor(budget: MemoryBudget, needs: Needs = model, isPinned = false) {
    this.isPinned = isPinned;
    this.claim = budget.register(needsOf(needs), this);
  }
  enter(): void {
    assert.notEqual(this.state, 'leaving');
    this.state = 'in';
  }
  hold(): void {
    assert.equal(this.state, 'in');
    this.state = 'held';
  }
  leave(): Promise<void> {
    assert.ok(this.isIdle && this.state !== 'out' && !this.isPinned);
    this.state = 'leaving';
    return new Promise((resolve) => (this.#left = resolve));
  }
  async left(): Promise<void> {
    this.state = 'out';
    this.#left();
    await Promise.resolve();
    await Promise.resolve();
  }
  works(isWorking: boolean, nowMs = 0): void {
    this.isIdle = !isWorking;
    this.usedMs = nowMs;
    if (!isWorking) this.claim.settle();
  }
}

describe('what a model takes', () => {
  test('a quarter of what is free for caches, when nothing is configured', () => {
    const budget = budgetOf({ free: 8000e6 });
    assert.throws(
      () => new Guest(budget, { ...model, slots: 201 }),
      refused(/201 slots of 1000 tokens needs 2\.0 GB, and a quarter of the free memory is 2\.0 GB: lower slots/),
    );
    assert.equal(new Guest(budget, { ...model, slots: 200 }).claim.cacheBytes, 2000e6);
  });

  test('four slots where that is left open, or their share, or at least one', () => {
    for (const [cacheBytesMax, slots] of [
      [1e9, [4, 4, 4]],
      [9 * slotBytes, [3, 3, 3]],
      [4 * slotBytes, [1, 1, 2]],
      [3.5 * slotBytes, [1, 1, 1]],
    ] as const) {
      const budget = budgetOf({ cacheBytesMax, models: 3 });
      assert.deepEqual(
        slots.map(() => new Guest(budget).claim.slots),
        slots,
      );
    }
  });

  test('its file, its caches and its process; one that does not fit alone is refused in words', () => {
    const budget = budgetOf({ bytesMax: 1030e6 });
    assert.equal(new Guest(budget, { ...model, slots: 3 }).claim.bytes, 800e6 + 3 * slotBytes + processBytes);
    assert.throws(
      () => new Guest(budget, { ...model, slots: 4 }),
      refused(
        /needs 1\.0 GB with 4 slots of 1000 tokens, and embedded_memory_bytes_max has room for 1\.0 GB: .*smaller model/,
      ),
    );
    assert.throws(() => new Guest(budgetOf({ free: 1000e6 })), refused(/the free memory has room for 800 MB/));
  });

  test('beside pinned models there is less', () => {
    const budget = budgetOf({ bytesMax: 2000e6, models: 2 });
    new Guest(budget, model, true);
    assert.throws(() => new Guest(budget), refused(/room for 960 MB beside the pinned models/));
  });
});

describe('models that do not fit together', () => {
  const two = (options: Partial<MemoryBudgetOptions> = {}) => {
    const budget = budgetOf({ bytesMax: 2200e6, models: 3, ...options });
    return [new Guest(budget), new Guest(budget), new Guest(budget)] as const;
  };

  test('are loaded at the start while there is room, and no further', () => {
    const [a, b, c] = two();
    assert.deepEqual(
      [a, b, c].map(({ claim }) => claim.requestIfFree()),
      [true, true, false],
    );
  });

  test('the idle one that was used least recently makes room, and enters again when it is asked for', async () => {
    const [a, b, c] = two();
    for (const guest of [a, b]) guest.claim.request();
    a.usedMs = 2;
    b.usedMs = 1;
    c.usedMs = 3;
    c.claim.request();
    assert.deepEqual([a.state, b.state, c.claim.isWaiting], ['in', 'leaving', true]);
    b.isWanted = true;
    await b.left();
    assert.equal(c.state, 'in');
    assert.equal(a.state, 'leaving', 'it is wanted again, and a is idle');
    await a.left();
    assert.deepEqual([a.state, b.state, c.state], ['out', 'in', 'in']);
  });

  test('a busy one makes room after its turn, once it has finished what it began', async () => {
    const [a, b, c] = two({ turnMs: 0 });
    for (const guest of [a, b]) {
      guest.claim.request();
      guest.claim.loaded();
      guest.works(true);
    }
    c.claim.request();
    assert.deepEqual([a.state, b.state], ['held', 'in'], 'the one that has been there longest, and no other');
    a.works(false);
    assert.equal(a.state, 'leaving');
    await a.left();
    assert.deepEqual([a.state, b.state, c.state], ['out', 'in', 'in']);
  });

  test('one that is being loaded has its turn before it, however long that takes', () => {
    const [a, b, c] = two({ turnMs: 0 });
    for (const guest of [a, b]) {
      guest.claim.request();
      guest.works(true);
    }
    b.claim.loaded();
    c.claim.request();
    assert.deepEqual([a.state, b.state], ['in', 'held']);
  });

  test('a busy one stays for its turn', (context) => {
    context.mock.timers.enable({ apis: ['setTimeout'] });
    const [a, b, c] = two({ turnMs: 10_000 });
    for (const guest of [a, b]) {
      guest.claim.request();
      guest.claim.loaded();
      guest.works(true);
    }
    c.claim.request();
    context.mock.timers.tick(900);
    assert.deepEqual([a.state, b.state], ['in', 'in']);
    // Idle ones make room at once.
    b.works(false);
    assert.equal(b.state, 'leaving');
  });

  test('one that does not wait any more makes nobody leave', async () => {
    const [a, b, c] = two({ turnMs: 0 });
    for (const guest of [a, b]) {
      guest.claim.request();
      guest.claim.loaded();
      guest.works(true);
    }
    c.claim.request();
    assert.equal(a.state, 'held');
    c.claim.withdraw();
    assert.equal(a.state, 'in', 'it goes on');
  });

  test('one that was seen to take more than was thought makes idle ones leave', () => {
    const [a, b] = two();
    for (const guest of [a, b]) guest.claim.request();
    a.usedMs = 1;
    a.claim.measured(1500e6);
    assert.deepEqual([a.state, b.state], ['in', 'leaving']);
  });

  test('other programs on the machine count: nobody enters what is not free', async () => {
    let free = 10e9;
    const [a, b] = two({ freeBytes: () => free });
    a.claim.request();
    free = 500e6;
    b.claim.request();
    assert.deepEqual([a.state, b.claim.isWaiting], ['leaving', true]);
    await a.left();
    assert.equal(b.state, 'in', 'alone it is let in: its own pages are all that is left to take');
  });
});

test('what is loaded never exceeds the budget, and whoever waits enters in the end', async () => {
  const claim = fc.record({
    fileBytes: fc.integer({ min: 1, max: 1_000_000 }).map((value) => value * 1000),
    cacheBytesPerToken: fc.integer({ min: 0, max: 100 }),
    contextLength: fc.integer({ min: 1, max: 1000 }),
    slots: fc.option(fc.integer({ min: 1, max: 16 }), { nil: undefined }),
  });
  const action = fc.record({ guest: fc.nat(5), kind: fc.constantFrom('request', 'work', 'rest', 'leave', 'vanish') });
  await fc.assert(
    fc.asyncProperty(
      fc.array(claim, { minLength: 2, maxLength: 6 }),
      fc.array(action, { maxLength: 60 }),
      async (needs, actions) => {
        const bytesMax = 1500e6;
        const budget = budgetOf({ bytesMax, models: needs.length, turnMs: 0 });
        const guests = needs.map((each) => new Guest(budget, each));
        const check = (): void => {
          const loaded = guests.filter(({ state }) => state !== 'out');
          assert.ok(loaded.reduce((sum, each) => sum + each.claim.bytes, 0) <= bytesMax);
        };
        for (const [nowMs, { guest: index, kind }] of actions.entries()) {
          const guest = guests[index % guests.length]!;
          if (kind === 'request') guest.claim.request();
          if (kind === 'work' && guest.state === 'in') {
            guest.claim.loaded();
            guest.works(true, nowMs);
          }
          if (kind === 'rest') guest.works(false, nowMs);
          if (kind === 'leave' && guest.state === 'leaving') await guest.left();
          if (kind === 'vanish' && guest.claim.isWaiting) guest.claim.withdraw();
          check();
        }
        for (let round = 0; round < 20; round++) {
          for (const guest of guests) guest.works(false);
          for (const guest of guests) if (guest.state === 'leaving') await guest.left();
          check();
        }
        assert.ok(guests.every((guest) => !guest.claim.isWaiting && guest.state !== 'held'));
      },
    ),
    { numRuns: 200 },
  );
});
