import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { responses } from '../../src/inference/dialects/responses/responses.ts';
import { plainSigner } from '../support/plain-signer.ts';
import { wires } from './dialects.ts';
import { readResponseStream, responseKeys, textOf } from './responses-reader.ts';
import type { WireResponse } from './responses-reader.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';
import { generationOf, head, metered, oneChoiceStream, saidOf, streamOf } from './whole-and-streamed.ts';

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
    fc.property(oneChoiceStream, (stream) => {
      const batches = metered(stream);
      const whole = JSON.parse(format.encodeResponse(generationOf(batches), head)) as WireResponse;
      assert.deepEqual(readResponseStream(streamOf(format, batches)).response, whole);
      assert.deepEqual(Object.keys(whole).toSorted(), responseKeys.toSorted());
    }),
    { numRuns: 2000 },
  );
});

test('what a client reads is what the engine said', () => {
  fc.assert(
    fc.property(oneChoiceStream, (stream) => {
      const { response } = readResponseStream(streamOf(format, metered(stream)));
      const said = stream.batches.flat();
      assert.equal(textsOf(response, 'message'), saidOf(said, 'text'));
      assert.equal(textsOf(response, 'reasoning'), saidOf(said, 'reasoning'));
      assert.equal(textsOf(response, 'function_call'), saidOf(said, 'tool-arguments'));
      assert.deepEqual(
        response.output.flatMap((item) => (item.type === 'function_call' ? [[item.call_id, item.name]] : [])),
        said.flatMap((event) => (event.type === 'tool-call' ? [[event.id, event.name]] : [])),
      );
      for (const item of response.output)
        if (item.type === 'reasoning') assert.equal(item.encrypted_content, plainSigner.encrypt(textOf(item)));
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
    fc.property(oneChoiceStream, (stream) => {
      const batches = metered(stream);
      assert.equal(
        streamOf(format, batches),
        streamOf(
          format,
          batches.flat().map((event) => [event]),
        ),
      );
    }),
  );
});

test('what is kept of an answer, sent back, is what was answered', () => {
  fc.assert(
    fc.property(oneChoiceStream, (stream) => {
      const generation = generationOf(metered(stream));
      const kept = format.itemsOf?.(generation, head);
      assert.ok(kept);
      const whole = JSON.parse(format.encodeResponse(generation, head)) as WireResponse;
      assert.deepEqual(
        [...kept.keys()],
        whole.output.map(({ id }) => id),
      );
      const decode = (input: readonly unknown[], items: ReadonlyMap<string, unknown> | undefined) =>
        responses.decodeRequest({ model: 'm', input }, { headers: {}, items }).request.prompt;
      const references = [...kept.keys()].map((id) => ({ type: 'item_reference', id }));
      // The encrypted text is for clients that keep nothing with us.
      const output = whole.output.map(({ encrypted_content: _, ...item }) => item);
      const known = JSON.parse(JSON.stringify(Object.fromEntries(kept))) as Record<string, unknown>;
      assert.deepEqual(decode(references, new Map(Object.entries(known))), decode(output, undefined));
    }),
    { numRuns: 500 },
  );
});

test('after any number of batches a failure is an error, a failed Response, and the end', () => {
  fc.assert(
    fc.property(oneChoiceStream, fc.nat(), (stream, cut) => {
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

const textsOf = ({ output }: WireResponse, type: string): string =>
  output
    .filter((item) => item.type === type)
    .map(textOf)
    .join('');
