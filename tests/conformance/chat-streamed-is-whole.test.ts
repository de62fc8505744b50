import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { chatFormat } from '../../src/inference/dialects/chat/chat.ts';
import { legalStream } from '../generation/legal-streams.ts';
import { readChatCompletion, readChatStream } from './chat-reader.ts';
import { wires } from './dialects.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';
import { generationOf, head, metered, saidOf, streamOf } from './whole-and-streamed.ts';

test('what a client reads from the stream is what it reads from the whole answer', () => {
  fc.assert(
    fc.property(legalStream, (stream) => {
      const batches = metered(stream);
      const streamed = readChatStream(streamOf(chatFormat, batches));
      const whole = readChatCompletion(chatFormat.encodeResponse(generationOf(batches), head));
      streamed.choices.sort((a, b) => a.index - b.index);
      assert.deepEqual(streamed, whole);
      assert.equal(whole.choices.length, stream.choices);
    }),
    { numRuns: 2000 },
  );
});

test('what a client reads is what the engine said', () => {
  fc.assert(
    fc.property(legalStream, (stream) => {
      const read = readChatStream(streamOf(chatFormat, metered(stream)));
      const said = stream.batches.flat();
      for (const choice of read.choices) {
        const own = said.filter((event) => 'choice' in event && event.choice === choice.index);
        assert.equal(choice.content, saidOf(own, 'text'));
        assert.equal(choice.reasoning, saidOf(own, 'reasoning'));
        const calls = own.filter((event) => event.type === 'tool-call');
        assert.deepEqual(
          choice.toolCalls,
          calls.map(({ call, id, name }) => {
            const fragments = own.filter((event) => event.type === 'tool-arguments' && event.call === call);
            return { id, type: 'function', name, arguments: saidOf(fragments, 'tool-arguments') };
          }),
        );
      }
      const { usage } = stream;
      assert.deepEqual(read.usage, {
        prompt_tokens: usage.promptTokens,
        completion_tokens: usage.completionTokens,
        total_tokens: usage.promptTokens + usage.completionTokens,
        prompt_tokens_details: { cached_tokens: usage.cachedTokens },
        completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
      });
    }),
    { numRuns: 2000 },
  );
});

test('the bytes of a stream do not depend on how it was cut into batches', () => {
  fc.assert(
    fc.property(legalStream, (stream) => {
      const batches = metered(stream);
      assert.equal(
        streamOf(chatFormat, batches),
        streamOf(
          chatFormat,
          batches.flat().map((event) => [event]),
        ),
      );
    }),
  );
});

test('after any number of batches a failure is a line of its own, then the end', () => {
  fc.assert(
    fc.property(legalStream, fc.nat(), (stream, cut) => {
      const batches = metered(stream).slice(0, -1);
      const encoder = chatFormat.openStream(head);
      const sent = batches.slice(0, cut % (batches.length + 1)).map((batch) => encoder.batch(batch));
      const error = {
        type: 'server_error',
        code: 'backend_timeout',
        message: 'a\n\nb',
        request_id: 'r',
        docs_url: 'd',
      } as const;
      const read = readChatStream(sent.join('') + encoder.error(error));
      assert.deepEqual([read.error, read.usage], [error, undefined]);
    }),
  );
});

for (const name of streamCaseNames()) {
  test(`the fixture ${name} reads the same both ways`, () => {
    const { sse, json } = print(readStreamCase(name), wires.get('chat')!);
    const streamed = readChatStream(sse);
    streamed.choices.sort((a, b) => a.index - b.index);
    if (streamed.error === undefined) assert.deepEqual(streamed, readChatCompletion(json));
    else assert.deepEqual({ error: streamed.error }, JSON.parse(json));
  });
}
