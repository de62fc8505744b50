import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { decodeCompletionRequest } from '../../../src/inference/dialects/completions/request.ts';
import type { CompletionRequest } from '../../../src/inference/dialects/completions/request.ts';
import { plainTokens } from '../../support/token-controls.ts';
import { inRepository } from '../../support/repository.ts';

const folder = inRepository('tests', 'fixtures', 'wire', 'completions');

interface Capture {
  readonly request: { readonly method: string; readonly url: string; readonly body: Record<string, unknown> };
}

const expectations: Readonly<Record<string, Omit<CompletionRequest, 'at'>>> = {
  'openai-node-04-completions-token-ids': {
    model: 'fake-model',
    stream: false,
    prompt: { type: 'token-ids', prompts: [[1, 2, 3]] },
    choices: 1,
    maxTokens: 4,
    sampling: {
      temperature: undefined,
      topP: undefined,
      topK: undefined,
      minP: undefined,
      presencePenalty: undefined,
      frequencyPenalty: undefined,
      repetitionPenalty: undefined,
      seed: undefined,
    },
    stop: [],
    tools: [],
    tier: undefined,
    toolChoice: undefined,
    parallelToolCalls: undefined,
    constraint: undefined,
    effort: undefined,
    preserveThinking: false,
    logprobs: 1,
    logitBias: undefined,
    tokens: plainTokens,
  },
};

for (const [name, expected] of Object.entries(expectations)) {
  test(`${name} is understood`, () => {
    const capture = JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8')) as Capture;
    assert.equal(`${capture.request.method} ${capture.request.url}`, 'POST /v1/completions');
    const { at: _, ...request } = decodeCompletionRequest(capture.request.body);
    assert.deepEqual(request, expected);
  });
}

test('every capture has an expectation', () => {
  assert.deepEqual(
    readdirSync(folder).sort(),
    Object.keys(expectations)
      .map((name) => `${name}.json`)
      .sort(),
  );
});
