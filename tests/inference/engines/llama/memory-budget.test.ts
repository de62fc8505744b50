import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { MemoryBudget } from '../../../../src/inference/engines/llama/memory-budget.ts';
import { memoryNeedsOf } from '../../../../src/inference/engines/llama/memory-needs.ts';
import { ModelRefused } from '../../../../src/inference/engines/llama/model-refused.ts';

const free = (bytes: number) => () => bytes;
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
const model: Needs = { fileBytes: 1000e6, cacheBytesPerToken: 10_000, contextLength: 1000, slots: undefined };
const slotBytes = 10e6;
const refused = (words: RegExp) => (error: unknown) => error instanceof ModelRefused && words.test(error.message);

describe('the memory of the embedded models', () => {
  test('is a quarter of what is free for caches, when nothing is configured', () => {
    const budget = new MemoryBudget({ cacheBytesMax: undefined, models: 1, freeBytes: free(8000e6) });
    assert.throws(
      () => budget.claim(needsOf({ ...model, slots: 201 })),
      refused(
        /201 slots of 1000 tokens needs 2\.0 GB, and 2\.0 GB of a quarter of the free memory is free: lower slots/,
      ),
    );
    assert.equal(budget.claim(needsOf({ ...model, slots: 200 })).cacheBytes, 2000e6);
  });

  test('gives models that leave it open four slots, or their share, or at least one', () => {
    for (const [cacheBytesMax, slots] of [
      [1e9, [4, 4, 4]],
      [9 * slotBytes, [3, 3, 3]],
      [4 * slotBytes, [1, 1, 2]],
      [3.5 * slotBytes, [1, 1, 1]],
    ] as const) {
      const budget = new MemoryBudget({ cacheBytesMax, models: 3, freeBytes: free(100e9) });
      assert.deepEqual(
        slots.map(() => budget.claim(needsOf(model)).slots),
        slots,
      );
    }
  });

  test('is refused in words: what is needed, what is free, what to do', () => {
    const budget = new MemoryBudget({ cacheBytesMax: 25e6, models: 2, freeBytes: free(100e9) });
    const first = budget.claim(needsOf({ ...model, slots: 2 }));
    const words =
      /1 slot of 1000 tokens needs 10 MB, and 5 MB of cache_bytes_max is free: lower slots or context_length/;
    assert.throws(() => budget.claim(needsOf({ ...model, slots: 1 })), refused(words));
    first.release();
    first.release();
    assert.equal(budget.claim(needsOf({ ...model, slots: 2 })).slots, 2);
  });

  test('holds the files too, also those that are still being loaded', () => {
    const budget = new MemoryBudget({ cacheBytesMax: 1e9, models: 3, freeBytes: free(2500e6) });
    budget.claim(needsOf(model));
    budget.claim(needsOf(model));
    assert.throws(
      () => budget.claim(needsOf(model)),
      refused(/needs 1\.0 GB of memory with 4 slots of 1000 tokens, and 420 MB is free: .*smaller model/),
    );
  });

  test('needs nothing for a model without a cache', () => {
    const budget = new MemoryBudget({ cacheBytesMax: 1, models: 1, freeBytes: free(100e9) });
    assert.deepEqual(budget.claim(needsOf({ ...model, cacheBytesPerToken: 0 })).slots, 4);
  });

  test('is never given away twice', () => {
    const claim = fc.record({
      cacheBytesPerToken: fc.integer({ min: 0, max: 100 }),
      contextLength: fc.integer({ min: 1, max: 1000 }),
      slots: fc.option(fc.integer({ min: 1, max: 16 }), { nil: undefined }),
      fileBytes: fc.integer({ min: 0, max: 100_000 }),
    });
    fc.assert(
      fc.property(
        fc.array(claim, { maxLength: 12 }),
        fc.integer({ min: 1, max: 1_000_000 }),
        (claims, cacheBytesMax) => {
          const budget = new MemoryBudget({ cacheBytesMax, models: claims.length, freeBytes: free(2_000_000) });
          let given = 0;
          let all = 0;
          for (const needs of claims) {
            try {
              const { slots, cacheBytes } = budget.claim(needsOf(needs));
              assert.equal(slots, needs.slots ?? slots);
              assert.equal(cacheBytes, slots * needs.contextLength * needs.cacheBytesPerToken);
              given += cacheBytes;
              all += cacheBytes + needs.fileBytes;
            } catch (error) {
              assert.ok(error instanceof ModelRefused);
            }
          }
          assert.ok(given <= cacheBytesMax && all <= 2_000_000);
        },
      ),
    );
  });
});
