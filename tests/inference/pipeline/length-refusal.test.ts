import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Model } from '../../../src/catalog/model.ts';
import { readingTimeExceeded } from '../../../src/inference/pipeline/fit.ts';
import { lengthRefusal } from '../../../src/inference/pipeline/length-refusal.ts';
import { ApiError } from '../../../src/platform/errors.ts';

test('a prompt that would not be read in time is refused with what would be', () => {
  const extra = { prompt_tokens: 7000, context_length_limit: 2100, reading_seconds: 600 };
  const refusal = lengthRefusal(new ApiError('context_length_exceeded', 'of the engine', { extra }));
  assert.deepEqual(refusal, { promptTokens: 7000, windowTokens: 2100, readingSeconds: 600 });
  const model = { id: 'm', contextLength: 8192 } as Model;
  const error = readingTimeExceeded(model, refusal!, [], 'messages');
  assert.deepEqual([error.code, error.param], ['context_length_exceeded', 'messages']);
  assert.match(error.message, /7000 tokens cannot be read in the 600 seconds .* reads about 2100\./);
  assert.deepEqual([error.extra['context_length_limit'], error.extra['prompt_tokens']], [2100, 7000]);
});
