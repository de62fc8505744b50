import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenResponses } from '@ai-sdk/open-responses';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, streamText } from 'ai';
import type { FilePart, LanguageModel, ModelMessage } from 'ai';

import { pngOf } from '../support/image-files.ts';
import { pdfOf } from '../support/pdf-files.ts';
import type { TestService } from '../support/service.ts';
import type { Upstream } from '../support/upstream.ts';
import { startSeeingService } from './seeing-service.ts';

/** Files in messages of the AI SDK, by all of its providers: what they are reaches the model (contracts §1.4). */
let upstream: Upstream;
let service: TestService;
before(async () => {
  ({ service, upstream } = await startSeeingService());
});
after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
});

/** What the backend was sent. */
const asked = (): string => upstream.exchanges.findLast(({ path }) => path.endsWith('/chat/completions'))?.body ?? '';

const at = () => ({ baseURL: `${service.url}/v1`, apiKey: service.key });
const providers: readonly (readonly [name: string, model: () => LanguageModel])[] = [
  ['openai, chat', () => createOpenAI(at()).chat('seeing')],
  ['openai, responses', () => createOpenAI(at()).responses('seeing')],
  ['openai-compatible', () => createOpenAICompatible({ ...at(), name: 'tokenhouse' })('seeing')],
  [
    'open-responses',
    () =>
      createOpenResponses({ name: 'tokenhouse', url: `${service.url}/v1/responses`, apiKey: service.key })('seeing'),
  ],
  ['anthropic', () => createAnthropic(at())('seeing')],
];

const pages = ['The meeting began at noon.', 'It was over at one.'];
const minutes = { type: 'file', mediaType: 'application/pdf', filename: 'minutes.pdf', data: pdfOf(pages) } as const;
const png = pngOf(3, 2);

const question = (file: FilePart) => ({
  messages: [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, file] }] satisfies ModelMessage[],
  maxOutputTokens: 100,
  maxRetries: 0,
});

for (const [name, modelOf] of providers) {
  describe(name, () => {
    for (const how of ['whole', 'streamed'] as const) {
      test(`the text of a PDF, with its name, reaches the model, ${how}`, async () => {
        const options = { model: modelOf(), ...question(minutes) };
        upstream.exchanges.length = 0;
        const result = how === 'whole' ? await generateText(options) : streamText(options);
        assert.equal(await result.text, 'Seen.');
        for (const part of [...pages, 'minutes.pdf', 'What is this?']) assert.ok(asked().includes(part), asked());
      });
    }

    test('an image reaches a model that sees', async () => {
      upstream.exchanges.length = 0;
      await generateText({ model: modelOf(), ...question({ type: 'file', mediaType: 'image/png', data: png }) });
      assert.ok(asked().includes(`data:image/png;base64,${png.toString('base64')}`), asked());
    });

    test('a file that cannot be read is refused in words that say which', async () => {
      const broken = { ...minutes, data: Buffer.from('%PDF-1.4 and nothing else') };
      await assert.rejects(generateText({ model: modelOf(), ...question(broken) }), (error: unknown) => {
        assert.ok(APICallError.isInstance(error), String(error));
        assert.deepEqual([error.statusCode, error.isRetryable], [400, false]);
        assert.match(
          error.responseBody ?? '',
          /"code":"unsupported_value".*"param":"(messages|input)\[0\]\.content\[1\]/,
        );
        return true;
      });
    });
  });
}
