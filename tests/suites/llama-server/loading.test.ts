/** A server that still loads its model: asked too early it says 503, and later it answers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createOpenAiEngine } from '../../../src/inference/engines/openai/openai-engine.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { all, engineRequest, textOf } from '../../inference/engines/contract.ts';
import { freePort } from '../../support/free-port.ts';
import { until } from '../../support/service.ts';
import { LlamaServer, defaultModelFile, stopServer } from './llama-server.ts';

test('while it loads the engine is starting and says so; then it is ready by itself', async () => {
  const server = await LlamaServer.listening({ modelFile: defaultModelFile(), port: await freePort() });
  const engine = createOpenAiEngine({ name: 'smollm2', url: server.url, flavor: 'llama-server' });
  const text = (content: string) => [{ type: 'text', text: content }] as const;
  const request = engineRequest('', {
    prompt: {
      type: 'messages',
      messages: [
        { role: 'system', content: text('You are a helpful assistant.') },
        { role: 'user', content: text('What is the capital of France?') },
      ],
    },
    maxTokens: 12,
    sampling: { ...engineRequest('').sampling, temperature: 0 },
  });
  try {
    const error: unknown = await all(engine, request, new AbortController().signal).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof ApiError, `it was not loading any more: ${String(error)}`);
    assert.equal(error.code, 'no_healthy_backends');
    assert.doesNotMatch(error.message, /Loading model/);
    assert.equal(engine.status().state, 'starting');
    assert.equal(await engine.countTokens(request, new AbortController().signal), undefined);

    await server.ready();
    await until(() => engine.status().state === 'ready', 30_000);
    assert.match(textOf(await all(engine, request, new AbortController().signal)), /Paris/);
  } finally {
    await engine.close();
    await stopServer(server);
  }
});
