import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { messages } from '../../src/dialects/messages/messages.ts';
import type { GenerationBatch, GenerationEvent } from '../../src/generation/event.ts';
import { Fold } from '../../src/generation/fold.ts';
import { Meter } from '../../src/pipeline/meter.ts';
import { legalStream } from '../generation/legal-streams.ts';
import type { LegalStream } from '../generation/legal-streams.ts';
import { plainSeals } from '../support/seals.ts';
import { wires } from './dialects.ts';
import { readMessageStream } from './messages-reader.ts';
import { assertMessageShape } from './messages-shape.ts';
import type { Generation } from './messages-shape.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';

const head = {
  requestId: 'req_0123456789ab',
  id: '00'.repeat(16),
  created: 1_790_000_000,
  model: 'a"model',
  seals: plainSeals,
};
const generations: readonly Generation[] = ['2023-06-01', '2026-10-21'];
const generation = fc.constantFrom(...generations);

const formatFor = (version: Generation, display: string) =>
  messages.decodeRequest(
    { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'x' }], thinking: { type: 'adaptive', display } },
    { headers: { 'anthropic-version': version }, items: undefined },
  ).format;

test('what a client reads from the stream is what it reads from the whole answer', () => {
  fc.assert(
    fc.property(legalStream, generation, fc.constantFrom('summarized', 'omitted'), (stream, version, display) => {
      const batches = metered(stream);
      const format = formatFor(version, display);
      const encoder = format.openStream(head);
      const sse = batches.map((batch) => encoder.batch(batch)).join('') + encoder.end();
      const fold = new Fold();
      for (const batch of batches) fold.read(batch);
      const whole: unknown = JSON.parse(format.encodeResponse(fold.generation(), head));
      assertMessageShape(whole, version);
      assert.deepEqual(readMessageStream(sse, version).message, whole);
    }),
    { numRuns: 2000 },
  );
});

test('what a client reads is what the engine said', () => {
  fc.assert(
    fc.property(legalStream, (stream) => {
      const { content, usage } = read(stream);
      const said = ofOneChoice(stream).flat();
      assert.equal(joined(content.map((block) => (block.type === 'text' ? block.text : ''))), textsOf(said, 'text'));
      assert.equal(
        joined(content.map((block) => (block.type === 'thinking' ? block.thinking : ''))),
        textsOf(said, 'reasoning'),
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
    fc.property(legalStream, generation, (stream, version) => {
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
    fc.property(legalStream, generation, fc.nat(), (stream, version, cut) => {
      const batches = metered(stream).slice(0, -1);
      const encoder = formatFor(version, 'summarized').openStream(head);
      const sent = batches.slice(0, cut % (batches.length + 1)).map((batch) => encoder.batch(batch));
      const error = { code: 'backend_timeout', message: 'a\n\nb', request_id: 'r', docs_url: 'd' } as const;
      const { error: told, types } = readMessageStream(
        sent.join('') + encoder.error({ ...error, type: 'server_error' }),
        version,
      );
      assert.deepEqual(told, { ...error, type: 'timeout_error', details: { error_code: 'backend_timeout' } });
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

/** The batches that leave the pipeline. */
function metered(stream: LegalStream): readonly GenerationBatch[] {
  const meter = new Meter({ choices: 1, promptTokensLikely: 0, elapsedMs: () => 0 });
  const passed: GenerationBatch[] = [];
  for (const batch of ofOneChoice(stream)) {
    meter.read(batch);
    if (meter.pass.length > 0) passed.push(meter.pass);
  }
  return [...passed, meter.closing()];
}

/** This family has one choice, and calls whose arguments come while they are open, which is how models write them. */
function ofOneChoice(stream: LegalStream): readonly GenerationBatch[] {
  let open: number | undefined;
  const isKept = (event: GenerationEvent): boolean => {
    if ('choice' in event && event.choice > 0) return false;
    if (event.type === 'tool-arguments') return event.call === open;
    if (event.type === 'tool-call') open = event.call;
    if ((event.type === 'text' || event.type === 'reasoning') && event.text !== '') open = undefined;
    return true;
  };
  return stream.batches.map((batch) => batch.filter(isKept)).filter((batch) => batch.length > 0);
}

function read(stream: LegalStream) {
  const encoder = formatFor('2023-06-01', 'summarized').openStream(head);
  const sse = metered(stream).map((batch) => encoder.batch(batch));
  const { message } = readMessageStream(sse.join('') + encoder.end(), '2023-06-01');
  assert.ok(message);
  return message;
}

const joined = (texts: readonly string[]): string => texts.join('');
const textsOf = (events: readonly GenerationEvent[], type: 'text' | 'reasoning'): string =>
  events.reduce((sum, event) => (event.type === type ? sum + event.text : sum), '');
