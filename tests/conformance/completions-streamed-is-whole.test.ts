import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { completions } from '../../src/inference/dialects/completions/completions.ts';
import type { GenerationBatch, GenerationEvent, PromptToken, TokenLogprob } from '../../src/generation/event.ts';
import { legalStream } from '../generation/legal-streams.ts';
import type { LegalStream } from '../generation/legal-streams.ts';
import { readCompletion, readCompletionStream } from './completions-reader.ts';
import { wires } from './dialects.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';
import { generationOf, head, metered, streamOf } from './whole-and-streamed.ts';

interface Asked {
  readonly echo: boolean;
  readonly logprobs: number | null;
  readonly return_token_ids: boolean;
  readonly return_tokens_as_token_ids: boolean;
}

const asked: fc.Arbitrary<Asked> = fc.record({
  echo: fc.boolean(),
  logprobs: fc.option(fc.nat(5), { nil: null }),
  return_token_ids: fc.boolean(),
  return_tokens_as_token_ids: fc.boolean(),
});

const formatOf = (fields: Asked) =>
  completions.decodeRequest({ model: 'm', prompt: 'x', ...fields }, { headers: {}, items: undefined }).format;

const text = fc.string({ unit: 'grapheme', minLength: 0, maxLength: 5 });
const token = fc.record({
  token: text,
  tokenId: fc.nat(1000),
  bytes: fc.constant(undefined),
  logprob: fc.constantFrom(-0.5, -Infinity, 0),
  top: fc.array(
    fc.record({ token: text, tokenId: fc.nat(1000), bytes: fc.constant(undefined), logprob: fc.constant(-1) }),
    { maxLength: 6 },
  ),
});

/** Streams whose choices have their prompts, with ids and with tokens that know where they begin. */
const promptedStream: fc.Arbitrary<{ readonly stream: LegalStream; readonly prompt: readonly PromptToken[] }> = fc
  .record({ stream: legalStream, prompt: fc.array(token, { maxLength: 4 }), tokens: fc.array(token, { maxLength: 6 }) })
  .map(({ stream, prompt, tokens }) => {
    const own = placed(prompt).map((one, index): PromptToken => (index === 0 ? { ...one, logprob: undefined } : one));
    const said = placed(tokens);
    const prompts: GenerationBatch = Array.from({ length: stream.choices }, (_, choice) => ({
      type: 'prompt',
      choice,
      text: prompt.map((one) => one.token).join(''),
      tokenIds: prompt.map(({ tokenId }) => tokenId),
      tokens: own,
    }));
    // In place of the texts of the stream, which do not know their places.
    const batches = stream.batches.map((batch): GenerationBatch => batch.filter(({ type }) => type !== 'text'));
    const texts: GenerationEvent[] = said.map((one) => ({
      type: 'text',
      choice: 0,
      text: one.token,
      tokenIds: [one.tokenId ?? 0],
      logprobs: [one],
    }));
    const [first = [], ...rest] = batches.filter((batch) => batch.length > 0);
    const [start, ...others] = first;
    const begun = start === undefined ? [] : [start];
    return { stream: { ...stream, batches: [[...begun, ...prompts, ...texts, ...others], ...rest] }, prompt: own };
  });

test('what a client reads from the stream is what it reads from the whole answer', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        legalStream,
        promptedStream.map(({ stream }) => stream),
      ),
      asked,
      (stream, fields) => {
        const format = formatOf(fields);
        const batches = metered(stream);
        const streamed = readCompletionStream(streamOf(format, batches));
        const whole = readCompletion(format.encodeResponse(generationOf(batches), head));
        for (const choice of [...streamed.choices, ...whole.choices]) choice.promptTokenIds ??= [];
        assert.deepEqual(streamed, whole);
        assert.equal(whole.choices.length, stream.choices);
      },
    ),
    { numRuns: 1000 },
  );
});

test('the bytes of a stream do not depend on how it was cut into batches', () => {
  fc.assert(
    fc.property(promptedStream, asked, ({ stream }, fields) => {
      const format = formatOf(fields);
      const batches = metered(stream);
      const printed = (cut: readonly GenerationBatch[]): string => {
        const encoder = format.openStream(head);
        return cut.map((batch) => encoder.batch(batch)).join('');
      };
      assert.equal(printed(batches), printed(batches.flat().map((event) => [event])));
    }),
  );
});

test('with echo the prompt is the beginning of the text, and offsets count its characters', () => {
  fc.assert(
    fc.property(promptedStream, ({ stream, prompt }) => {
      const format = formatOf({ echo: true, logprobs: 2, return_token_ids: true, return_tokens_as_token_ids: false });
      const read = readCompletion(format.encodeResponse(generationOf(metered(stream)), head));
      const [first] = read.choices;
      assert.ok(first);
      assert.ok(first.text.startsWith(prompt.map((one) => one.token).join('')));
      const characters = [...first.text];
      for (const [index, offset] of first.logprobs.text_offset.entries()) {
        const own: string = first.logprobs.tokens[index] ?? '';
        assert.equal(characters.slice(offset, offset + [...own].length).join(''), own);
      }
      assert.deepEqual(
        first.promptTokenIds,
        prompt.map(({ tokenId }) => tokenId),
      );
      if (prompt.length > 0) {
        assert.equal(first.logprobs.token_logprobs[0], null);
        assert.equal(first.logprobs.top_logprobs[0], null);
      }
      for (const [index, top] of first.logprobs.top_logprobs.entries()) {
        if (top === null) continue;
        assert.ok(Object.keys(top).length <= 3);
        assert.equal(top[first.logprobs.tokens[index] ?? ''], first.logprobs.token_logprobs[index]);
      }
    }),
  );
});

test('after any number of batches a failure is a line of its own, then the end', () => {
  fc.assert(
    fc.property(legalStream, asked, fc.nat(), (stream, fields, cut) => {
      const batches = metered(stream).slice(0, -1);
      const encoder = formatOf(fields).openStream(head);
      const sent = batches.slice(0, cut % (batches.length + 1)).map((batch) => encoder.batch(batch));
      const error = {
        type: 'server_error',
        code: 'backend_timeout',
        message: 'a\n\nb',
        request_id: 'r',
        docs_url: 'd',
      } as const;
      const read = readCompletionStream(sent.join('') + encoder.error(error));
      assert.deepEqual([read.error, read.usage], [error, undefined]);
    }),
  );
});

for (const name of streamCaseNames()) {
  for (const wire of ['completions', 'completions-tokens']) {
    test(`the fixture ${name} reads the same both ways on ${wire}`, () => {
      const { sse, json } = print(readStreamCase(name), wires.get(wire)!);
      const streamed = readCompletionStream(sse);
      if (streamed.error !== undefined) {
        assert.deepEqual({ error: streamed.error }, JSON.parse(json));
        return;
      }
      const whole = readCompletion(json);
      for (const choice of [...streamed.choices, ...whole.choices]) choice.promptTokenIds ??= [];
      assert.deepEqual(streamed, whole);
    });
  }
}

function placed(tokens: readonly TokenLogprob[]): readonly TokenLogprob[] {
  let start = 0;
  return tokens.map((one) => {
    const at = start;
    start += one.token.length;
    return { ...one, start: at };
  });
}
