import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import type { ResponseHead } from '../../src/dialects/dialect.ts';
import { responses } from '../../src/dialects/responses/responses.ts';
import type { GenerationBatch, GenerationEvent } from '../../src/generation/event.ts';
import { Fold } from '../../src/generation/fold.ts';
import { Meter } from '../../src/pipeline/meter.ts';
import { legalStream } from '../generation/legal-streams.ts';
import type { LegalStream } from '../generation/legal-streams.ts';
import { plainSeals } from '../support/seals.ts';
import { wires } from './dialects.ts';
import { readResponseStream, responseKeys, textOf } from './responses-reader.ts';
import type { WireResponse } from './responses-reader.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';

const head: ResponseHead = {
  requestId: 'req_0123456789ab',
  id: '00'.repeat(16),
  created: 1_790_000_000,
  model: 'a"model',
  seals: plainSeals,
  now: () => 1_790_000_001,
};

const { format } = responses.decodeRequest(
  {
    model: 'm',
    input: 'hi',
    include: ['reasoning.encrypted_content', 'message.output_text.logprobs'],
    metadata: { a: 'b\n\n' },
    tools: [{ type: 'web_search' }, { type: 'function', name: 'a', parameters: { type: 'object' } }],
  },
  { headers: {}, items: undefined },
);

const plain = responses.decodeRequest({ model: 'm', input: 'hi' }, { headers: {}, items: undefined }).format;

test('what a client reads from the stream is what it reads from the whole answer', () => {
  fc.assert(
    fc.property(ofOneChoice(legalStream), (stream) => {
      const batches = metered(stream);
      const whole = JSON.parse(format.encodeResponse(folded(batches).generation(), head)) as WireResponse;
      assert.deepEqual(readResponseStream(streamOf(batches)).response, whole);
      assert.deepEqual(Object.keys(whole).toSorted(), responseKeys.toSorted());
    }),
    { numRuns: 2000 },
  );
});

test('what a client reads is what the engine said', () => {
  fc.assert(
    fc.property(ofOneChoice(legalStream), (stream) => {
      const { response } = readResponseStream(streamOf(metered(stream)));
      const said = stream.batches.flat();
      assert.equal(textsOf(response, 'message'), saidOf(said, 'text'));
      assert.equal(textsOf(response, 'reasoning'), saidOf(said, 'reasoning'));
      assert.equal(textsOf(response, 'function_call'), saidOf(said, 'tool-arguments'));
      assert.deepEqual(
        response.output.flatMap((item) => (item.type === 'function_call' ? [[item.call_id, item.name]] : [])),
        said.flatMap((event) => (event.type === 'tool-call' ? [[event.id, event.name]] : [])),
      );
      for (const item of response.output)
        if (item.type === 'reasoning') assert.equal(item.encrypted_content, plainSeals.encrypt(textOf(item)));
      const isCut = said.some((event) => event.type === 'finish' && event.reason === 'length');
      assert.equal(response.status, isCut ? 'incomplete' : 'completed');
      assert.deepEqual(response.incomplete_details, isCut ? { reason: 'max_output_tokens' } : null);
      const statuses = response.output.map(({ type, status }) => status ?? (type === 'reasoning' ? 'completed' : ''));
      assert.equal(statuses.pop(), isCut ? 'incomplete' : 'completed', 'only the last item is cut');
      assert.ok(statuses.every((status) => status === 'completed'));
      const { usage } = stream;
      assert.deepEqual(response.usage, {
        input_tokens: usage.promptTokens,
        input_tokens_details: { cached_tokens: usage.cachedTokens, cache_write_tokens: 0 },
        output_tokens: usage.completionTokens,
        output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
        total_tokens: usage.promptTokens + usage.completionTokens,
      });
    }),
    { numRuns: 2000 },
  );
});

test('the bytes of a stream do not depend on how it was cut into batches', () => {
  fc.assert(
    fc.property(ofOneChoice(legalStream), (stream) => {
      const batches = metered(stream);
      assert.equal(streamOf(batches), streamOf(batches.flat().map((event) => [event])));
    }),
  );
});

test('what is kept of an answer, sent back, is what was answered', () => {
  fc.assert(
    fc.property(ofOneChoice(legalStream), (stream) => {
      const fold = folded(metered(stream));
      const kept = format.itemsOf?.(fold.generation(), head);
      assert.ok(kept);
      const whole = JSON.parse(format.encodeResponse(fold.generation(), head)) as WireResponse;
      assert.deepEqual(
        [...kept.keys()],
        whole.output.map(({ id }) => id),
      );
      const decode = (input: readonly unknown[], items: ReadonlyMap<string, unknown> | undefined) =>
        responses.decodeRequest({ model: 'm', input }, { headers: {}, items }).request.prompt;
      const references = [...kept.keys()].map((id) => ({ type: 'item_reference', id }));
      // The seal is for those who keep nothing with us.
      const output = whole.output.map(({ encrypted_content: _, ...item }) => item);
      const known = JSON.parse(JSON.stringify(Object.fromEntries(kept))) as Record<string, unknown>;
      assert.deepEqual(decode(references, new Map(Object.entries(known))), decode(output, undefined));
    }),
    { numRuns: 500 },
  );
});

test('after any number of batches a failure is an error, a failed Response, and the end', () => {
  fc.assert(
    fc.property(ofOneChoice(legalStream), fc.nat(), (stream, cut) => {
      const batches = metered(stream).slice(0, -1);
      const encoder = plain.openStream(head);
      const sent = batches.slice(0, cut % (batches.length + 1)).map((batch) => encoder.batch(batch));
      const error = {
        type: 'server_error',
        code: 'backend_timeout',
        message: 'a\n\nb',
        request_id: 'r',
        docs_url: 'd',
      } as const;
      const read = readResponseStream(sent.join('') + encoder.error(error));
      assert.equal(read.error?.['code'], 'backend_timeout');
      assert.equal(read.error['message'], 'a\n\nb');
      assert.equal(read.error['param'], null);
      assert.deepEqual(read.error.error, { ...error, param: null });
      assert.deepEqual(read.response.error, { code: 'server_error', message: 'a\n\nb' });
      assert.equal(read.response.usage, null);
    }),
  );
});

for (const name of streamCaseNames()) {
  test(`the fixture ${name} reads the same both ways`, () => {
    const { sse, json } = print(readStreamCase(name), wires.get('responses')!);
    const streamed = readResponseStream(sse);
    if (streamed.error === undefined) assert.deepEqual(streamed.response, JSON.parse(json));
    else {
      const { param: _, ...error } = streamed.error.error ?? {};
      assert.deepEqual({ error }, JSON.parse(json));
    }
  });
}

/** This wire has one choice, and a backend that goes back to a call it has left is refused (`Blocks`). */
function ofOneChoice(streams: fc.Arbitrary<LegalStream>): fc.Arbitrary<LegalStream> {
  return streams.map((stream) => {
    let current: number | undefined;
    const batches = stream.batches.map((batch) =>
      batch.filter((event) => {
        if ('choice' in event && event.choice !== 0) return false;
        if (event.type === 'tool-call') current = event.call;
        if ((event.type === 'text' || event.type === 'reasoning') && event.text !== '') current = undefined;
        return event.type !== 'tool-arguments' || event.call === current;
      }),
    );
    return { ...stream, choices: 1, batches: batches.filter((batch) => batch.length > 0) };
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
  const encoder = format.openStream(head);
  return batches.map((batch) => encoder.batch(batch)).join('') + encoder.end();
}

function folded(batches: readonly GenerationBatch[]): Fold {
  const fold = new Fold();
  for (const batch of batches) fold.read(batch);
  return fold;
}

const textsOf = ({ output }: WireResponse, type: string): string =>
  output
    .filter((item) => item.type === type)
    .map(textOf)
    .join('');

const saidOf = (events: readonly GenerationEvent[], type: 'text' | 'reasoning' | 'tool-arguments'): string =>
  events.reduce((sum, event) => (event.type === type ? sum + event.text : sum), '');
