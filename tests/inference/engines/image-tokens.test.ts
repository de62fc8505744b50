import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { openAiImageTokens, openModelImageTokens } from '../../../src/inference/engines/image-tokens.ts';

test('§4.2.4(3): published examples of sizes and their tokens', () => {
  // Qwen2-VL: 28 × 28 pixels a token, 16,384 at most.
  assert.equal(openModelImageTokens({ width: 28, height: 28 }).likely, 1);
  assert.equal(openModelImageTokens({ width: 1_288, height: 728 }).likely, 46 * 26);
  assert.equal(openModelImageTokens({ width: 8_000, height: 4_000 }).likely, 16_384);
  // OpenAI's guide: 1024 × 1024 is 765, 2048 × 4096 is 1,105; GPT-4o mini takes 25,501 and 36,835.
  assert.deepEqual(openAiImageTokens({ width: 1_024, height: 1_024 }), { likely: 765, most: 25_501 });
  assert.deepEqual(openAiImageTokens({ width: 2_048, height: 4_096 }), { likely: 1_105, most: 36_835 });
});

test('§4.2.4(3): the bound holds for the rules of other open models', () => {
  const rules: Readonly<Record<string, (width: number, height: number) => number>> = {
    'LLaVA 1.5': () => 576,
    'Gemma 3': () => 256,
    'LLaVA-NeXT': () => 2_880,
    'InternVL, twelve tiles and a thumbnail': () => 13 * 256,
    'Pixtral, 16 × 16 and a token a row, at most 1,024 a side': (width, height) => {
      const scale = Math.min(1, 1_024 / Math.max(width, height));
      const [columns, rows] = [Math.ceil((width * scale) / 16), Math.ceil((height * scale) / 16)];
      return rows * (columns + 1);
    },
    'Qwen3-VL, 32 × 32': (width, height) => Math.min(Math.ceil(width / 32) * Math.ceil(height / 32), 16_384),
  };
  const side = fc.integer({ min: 1, max: 8_192 });
  fc.assert(
    fc.property(side, side, (width, height) => {
      const { likely, most } = openModelImageTokens({ width, height });
      for (const [name, rule] of Object.entries(rules)) assert.ok(rule(width, height) <= most, name);
      for (const tokens of [openModelImageTokens, openAiImageTokens]) {
        const each = tokens({ width, height });
        assert.ok(Number.isSafeInteger(each.likely) && each.likely >= 1 && each.likely <= each.most);
        assert.ok(each.most <= tokens(undefined).most, 'an image whose size is not known is no smaller than any');
      }
      assert.ok(likely <= most);
    }),
    { numRuns: 2_000 },
  );
});
