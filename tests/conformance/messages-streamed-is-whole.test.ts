import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { messages } from '../../src/inference/dialects/messages/messages.ts';
import type { GenerationBatch } from '../../src/generation/event.ts';
import type { LegalStream } from '../generation/legal-streams.ts';
import { wires } from './dialects.ts';
import { readMessageStream } from './messages-reader.ts';
import { assertMessageShape } from './messages-shape.ts';
import type { Generation } from './messages-shape.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';
import { generationOf, head, metered, oneChoiceStream, saidOf, streamOf } from './whole-and-streamed.ts';

const generations: readonly Generation[] = ['2023-06-01', '2026-10-21'];
const generation = fc.constantFrom(...generations);

const formatFor = (version: Generation, display: string) =>
  messages.decodeRequest(
    { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'x' }], thinking: { type: 'adaptive', display } },
    { headers: { 'anthropic-version': version }, items: undefined },
  ).format;

test('what a client reads from the stream is what it reads from the whole answer', () => {
  fc.assert(
    fc.property(oneChoiceStream, generation, fc.constantFrom('summarized', 'omitted'), (stream, version, display) => {
      const batches = metered(stream);
      const format = formatFor(version, display);
      const whole: unknown = JSON.parse(format.encodeResponse(generationOf(batches), head));
      assertMessageShape(whole, version);
      assert.deepEqual(readMessageStream(streamOf(format, batches), version).message, whole);
    }),
    { numRuns: 2000 },
  );
});

test('what a client reads is what the engine said', () => {
  fc.assert(
    fc.property(oneChoiceStream, (stream) => {
      const { content, usage } = read(stream);
      const said = stream.batches.flat();
      assert.equal(joined(content.map((block) => (block.type === 'text' ? block.text : ''))), saidOf(said, 'text'));
      assert.equal(
        joined(content.map((block) => (block.type === 'thinking' ? block.thinking : ''))),
        saidOf(said, 'reasoning'),
      );
      assert.ok(
        content.every((block) => block.type !== 'text' || block.text !== ''),
        'no block is empty',
      );
      assert.deepEqual(
        content.flatMap((block) => (block.type === 'tool_use' ? [block.name] : [])),
        said.flatMap((event) => (event.type === 'tool-call' ? [event.name] : [])),
      );
      const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = stream.usage;
      assert.deepEqual(
        [usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens, usage.output_tokens],
        [promptTokens, completionTokens],
      );
      assert.deepEqual(
        [usage.cache_read_input_tokens, usage.output_tokens_details.thinking_tokens],
        [cachedTokens, reasoningTokens],
      );
    }),
    { numRuns: 1000 },
  );
});

test('the bytes of a stream do not depend on how it was cut into batches', () => {
  fc.assert(
    fc.property(oneChoiceStream, generation, (stream, version) => {
      const batches = metered(stream);
      const bytes = (cut: readonly GenerationBatch[]): string => {
        const encoder = formatFor(version, 'summarized').openStream(head);
        return cut.map((batch) => encoder.batch(batch)).join('');
      };
      assert.equal(bytes(batches), bytes(batches.flat().map((event) => [event])));
    }),
  );
});

test('after any number of batches a failure is the last event, and no message_stop follows', () => {
  fc.assert(
    fc.property(oneChoiceStream, generation, fc.nat(), (stream, version, cut) => {
      const batches = metered(stream).slice(0, -1);
      const encoder = formatFor(version, 'summarized').openStream(head);
      const sent = batches.slice(0, cut % (batches.length + 1)).map((batch) => encoder.batch(batch));
      const error = { code: 'backend_timeout', message: 'a\n\nb', request_id: 'r', docs_url: 'd' } as const;
      const { error: reported, types } = readMessageStream(
        sent.join('') + encoder.error({ ...error, type: 'server_error' }),
        version,
      );
      assert.deepEqual(reported, { ...error, type: 'timeout_error', details: { error_code: 'backend_timeout' } });
      assert.equal(types.at(-1), 'error');
      assert.ok(!types.includes('message_stop'));
    }),
  );
});

for (const name of streamCaseNames()) {
  for (const [wire, version] of [
    ['messages', '2023-06-01'],
    ['messages-2026-10-21', '2026-10-21'],
  ] as const) {
    test(`the fixture ${name} on ${wire} reads the same both ways`, () => {
      const { sse, json } = print(readStreamCase(name), wires.get(wire)!);
      const { message, error } = readMessageStream(sse, version);
      const whole = JSON.parse(json) as { error?: { code: string } };
      if (error === undefined) assert.deepEqual(message, whole);
      else assert.equal((error as { code: string }).code, whole.error?.code);
    });
  }
}

function read(stream: LegalStream) {
  const sse = streamOf(formatFor('2023-06-01', 'summarized'), metered(stream));
  const { message } = readMessageStream(sse, '2023-06-01');
  assert.ok(message);
  return message;
}

const joined = (texts: readonly string[]): string => texts.join('');
