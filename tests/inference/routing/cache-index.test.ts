import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'node:test';
import { CacheIndex } from '../../../src/inference/routing/cache-index.ts';
import { idleLoad } from '../../../src/inference/routing/backend-load.ts';

/** What the index believes is what a plain list of uses says, for each backend by itself. */
const blockTokens = 100;
const prefixesOf = (conversation: number, length: number) => ({
  // Conversations 0 and 1 have their first two blocks in common.
  hashes: Array.from({ length }, (_, index) =>
    index < 2 && conversation < 2 ? index : 10 * (conversation + 1) + index,
  ),
  tokens: Array.from({ length }, (_, index) => (index + 1) * blockTokens),
});

test('whatever is used, dropped and looked for: each backend has what it was sent last, as far as its cache holds', () => {
  const step = fc.oneof(
    fc.record({
      type: fc.constant('use' as const),
      backend: fc.nat(2),
      conversation: fc.nat(3),
      length: fc.integer({ min: 1, max: 5 }),
    }),
    fc.record({ type: fc.constant('drop' as const), backend: fc.nat(2) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const index = new CacheIndex();
      const views = [400, 700, 1_000].map((cacheTokensMax) => ({ ...idleLoad(), cacheTokensMax }));
      /** The blocks of each, the last used last. */
      const model: number[][] = [[], [], []];
      for (const taken of steps) {
        const view = views[taken.backend]!;
        if (taken.type === 'drop') {
          index.drop(view);
          model[taken.backend] = [];
          continue;
        }
        const prefixes = prefixesOf(taken.conversation, taken.length);
        index.use(view, prefixes);
        const others = model[taken.backend]!.filter((block) => !prefixes.hashes.includes(block));
        model[taken.backend] = [...others, ...prefixes.hashes.toReversed()].slice(-view.cacheTokensMax / blockTokens);
      }
      for (let conversation = 0; conversation < 4; conversation++) {
        const prefixes = prefixesOf(conversation, 5);
        const cachedTokens = index.look(prefixes);
        for (const [backend, view] of views.entries()) {
          let known = 0;
          while (known < 5 && model[backend]!.includes(prefixes.hashes[known]!)) known++;
          assert.equal(
            cachedTokens[view.cacheNumber],
            known * blockTokens,
            `backend ${backend}, conversation ${conversation}`,
          );
        }
      }
    }),
  );
});

test('what was used before something that is gone is gone too', () => {
  const index = new CacheIndex();
  const view = idleLoad();
  index.use(view, prefixesOf(2, 3));
  index.use(view, prefixesOf(3, 3));
  const usedAt = index.use(view, prefixesOf(3, 3));
  index.use(view, prefixesOf(1, 3));
  index.dropUsedUntil(view, usedAt);
  const known = [1, 2, 3].map((conversation) => index.look(prefixesOf(conversation, 3))[view.cacheNumber]);
  assert.deepEqual(known, [300, 0, 300]);
});
