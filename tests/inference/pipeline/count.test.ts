/** Counting before dispatch: what becomes of a backend's refusals (architecture, "Counting"). */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Engine, EngineStatus } from '../../../src/inference/engines/engine.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { PromptCounts } from '../../../src/inference/pipeline/count.ts';
import type { Backend } from '../../../src/inference/pipeline/backend-pool.ts';
import { idleLoad } from '../../../src/inference/routing/backend-load.ts';
import { engineRequest } from '../engines/contract.ts';

const signal = new AbortController().signal;
const request = engineRequest('hi');
const counts = new PromptCounts();
const countPrompt = counts.count.bind(counts);

test('the first backend that is ready counts', async () => {
  const down = backend(() => Promise.resolve(1), { state: 'down', detail: 'closed' });
  assert.equal(await countPrompt(request, [down, backend(() => Promise.resolve(7))], signal), 7);
  assert.equal(await countPrompt(request, [down], signal), undefined);
  assert.equal(await countPrompt(request, [], signal), undefined);
});

test('a refusal for length is the count that it tells, or too-long', async () => {
  const refusing = (extra: Record<string, unknown>) =>
    backend(() => Promise.reject(new ApiError('context_length_exceeded', 'too long', { extra })));
  assert.equal(await countPrompt(request, [refusing({ prompt_tokens: 9010 })], signal), 9010);
  assert.equal(await countPrompt(request, [refusing({ prompt_tokens: 'many' })], signal), 'too-long');
  assert.equal(await countPrompt(request, [refusing({})], signal), 'too-long');
});

test('any other failure leaves the judgement to the backend', async () => {
  for (const error of [new ApiError('backend_timeout', 'slow'), new Error('broken')]) {
    assert.equal(await countPrompt(request, [backend(() => Promise.reject(error))], signal), undefined);
  }
});

function backend(countTokens: Engine['countTokens'], status: EngineStatus = { state: 'ready' }): Backend {
  const engine: Engine = {
    generate: () => {
      throw new Error('nothing is generated here');
    },
    countTokens,
    status: () => status,
    close: () => Promise.resolve(),
  };
  return {
    label: 'one',
    kind: 'one',
    provider: 'one',
    engine,
    queueMax: 0,
    zdr: false,
    enforces: [],
    lacks: [],
    ...idleLoad(),
  };
}
