import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { chatFormat } from '../../src/dialects/chat/chat.ts';
import type { GenerationBatch, GenerationEvent } from '../../src/generation/event.ts';
import { Fold } from '../../src/generation/fold.ts';
import { Meter } from '../../src/pipeline/meter.ts';
import { legalStream } from '../generation/legal-streams.ts';
import type { LegalStream } from '../generation/legal-streams.ts';
import { readChatCompletion, readChatStream } from './chat-reader.ts';
import { wires } from './dialects.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';
import { plainSeals } from '../support/seals.ts';

const head = {
  requestId: 'req_0123456789ab',
  id: '00'.repeat(16),
  created: 1_790_000_000,
  model: 'a"model',
  seals: plainSeals,
};

test('what a client reads from the stream is what it reads from the whole answer', () => {
  fc.assert(
    fc.property(legalStream, (stream) => {
      const batches = metered(stream);
      const streamed = readChatStream(streamOf(batches));
      const whole = readChatCompletion(chatFormat.encodeResponse(folded(batches).generation(), head));
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
      const read = readChatStream(streamOf(metered(stream)));
      const said = stream.batches.flat();
      for (const choice of read.choices) {
        const own = said.filter((event) => 'choice' in event && event.choice === choice.index);
        assert.equal(choice.content, textsOf(own, 'text'));
        assert.equal(choice.reasoning, textsOf(own, 'reasoning'));
        const calls = own.filter((event) => event.type === 'tool-call');
        assert.deepEqual(
          choice.toolCalls,
          calls.map(({ call, id, name }) => {
            const fragments = own.filter((event) => event.type === 'tool-arguments' && event.call === call);
            return { id, type: 'function', name, arguments: textsOf(fragments, 'tool-arguments') };
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
      assert.equal(streamOf(batches), streamOf(batches.flat().map((event) => [event])));
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

/** The batches that leave the pipeline. */
function metered(stream: LegalStream): readonly GenerationBatch[] {
  const meter = new Meter({ choices: stream.choices, promptTokensLikely: 0, elapsedMs: () => 0 });
  const passed: GenerationBatch[] = [];
  for (const batch of stream.batches) {
    meter.read(batch);
    if (meter.pass.length > 0) passed.push(meter.pass);
  }
  return [...passed, meter.closing()];
}

function streamOf(batches: readonly GenerationBatch[]): string {
  const encoder = chatFormat.openStream(head);
  return batches.map((batch) => encoder.batch(batch)).join('') + encoder.end();
}

function folded(batches: readonly GenerationBatch[]): Fold {
  const fold = new Fold();
  for (const batch of batches) fold.read(batch);
  return fold;
}

const textsOf = (events: readonly GenerationEvent[], type: 'text' | 'reasoning' | 'tool-arguments'): string =>
  events.reduce((sum, event) => (event.type === type ? sum + event.text : sum), '');
