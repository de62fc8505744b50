import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Model } from '../../../src/catalog/model.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { fit } from '../../../src/inference/pipeline/fit.ts';
import type { Fitted } from '../../../src/inference/pipeline/fit.ts';
import { capableModel, chatRequest, chatRoute } from './models.ts';

test('§4.2.4(3): images count in the window as is likely, and in the hold as many as there can be', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        text: fc.nat(3_000),
        likely: fc.nat(3_000),
        further: fc.nat(6_000),
        window: fc.integer({ min: 16, max: 8_192 }),
        asked: fc.option(fc.integer({ min: 1, max: 4_096 }), { nil: undefined }),
      }),
      async ({ text, likely, further, window, asked }) => {
        const model: Model = { ...capableModel, contextLength: window, maxOutputTokens: null };
        const images = { likely, most: likely + further };
        const request = {
          ...chatRequest({ messages: [{ role: 'user', content: 'x'.repeat(4 * text) }] }),
          maxTokens: asked,
        };
        let fitted: Fitted;
        try {
          const count = () => Promise.resolve(text);
          fitted = await fit({ ...request, reasoningRoomTokens: 0 }, model, chatRoute, count, () => [], images);
        } catch (error) {
          assert.ok(error instanceof ApiError && error.code === 'context_length_exceeded');
          assert.ok(text + likely >= window, 'refused although the likely prompt leaves room');
          return;
        }
        assert.ok(fitted.promptTokens >= text + images.most, 'the hold covers what the images may be');
        assert.ok(text + likely + fitted.maxTokens <= window, 'the likely prompt and the answer fit');
        if (images.most > 0) assert.equal(fitted.counted, false);
      },
    ),
    { numRuns: 500 },
  );
});
