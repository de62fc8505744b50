/** What a client reads from a stream is what it reads from the whole answer, and what the engine said: in every family. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import fc from 'fast-check';

import { chatFormat } from '../../src/inference/dialects/chat/chat.ts';
import { completions } from '../../src/inference/dialects/completions/completions.ts';
import type { AnswerFormat } from '../../src/inference/dialects/dialect.ts';
import { messages } from '../../src/inference/dialects/messages/messages.ts';
import { responses } from '../../src/inference/dialects/responses/responses.ts';
import type { GenerationBatch, GenerationEvent, PromptToken, TokenLogprob } from '../../src/generation/event.ts';
import { covered } from '../generation/covered.ts';
import { legalStream } from '../generation/legal-streams.ts';
import type { LegalStream } from '../generation/legal-streams.ts';
import { plainSigner } from '../support/plain-signer.ts';
import { readChatCompletion, readChatStream } from './chat-reader.ts';
import { readCompletion, readCompletionStream } from './completions-reader.ts';
import type { ReadCompletion } from './completions-reader.ts';
import { wires } from './dialects.ts';
import { readMessageStream } from './messages-reader.ts';
import { assertMessageShape } from './messages-shape.ts';
import type { Generation } from './messages-shape.ts';
import { readResponseStream, responseKeys, textOf } from './responses-reader.ts';
import type { WireResponse } from './responses-reader.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';
import { generationOf, head, metered, oneChoiceStream, saidOf, streamOf } from './whole-and-streamed.ts';

/** How a client of a family reads its two forms of an answer. */
interface Reader {
  /** What is read from a stream, in the form of what is read from the whole answer; or the error that it ended with. */
  readonly streamed: (sse: string) => { readonly read: unknown; readonly error?: unknown };
  readonly whole: (json: string) => unknown;
  /** The error of a whole answer, as far as a stream says it too. */
  readonly wholeError: (json: string) => unknown;
}

/** A form of answers that a request may ask for, and its reader. */
interface Form extends Reader {
  readonly format: AnswerFormat;
  /** Of messages. */
  readonly version?: Generation;
}

interface Family {
  readonly name: string;
  readonly streams: fc.Arbitrary<LegalStream>;
  readonly forms: fc.Arbitrary<Form>;
  readonly runs: number;
  /** What else holds of a whole answer. */
  readonly checkWhole: (whole: unknown, stream: LegalStream) => void;
  /** Holds what a client reads against what the engine said. */
  readonly said?: { readonly runs: number; readonly check: (stream: LegalStream) => void };
  /** What a stream says that fails after any number of batches. */
  readonly failure: {
    readonly title: string;
    readonly check: (sse: string, form: Form) => void;
    readonly forms?: fc.Arbitrary<Form>;
  };
  /** The readers of the wires on which the fixtures are printed. */
  readonly fixtures: Readonly<Record<string, Reader>>;
}

const failed = {
  type: 'server_error',
  code: 'backend_timeout',
  message: 'a\n\nb',
  request_id: 'r',
  docs_url: 'd',
} as const;

/** What holds of every family. */
function testFamily(family: Family): void {
  const { streams, forms, runs, checkWhole, said, failure, fixtures } = family;

  describe(family.name, () => {
    test('what a client reads from the stream is what it reads from the whole answer', () => {
      fc.assert(
        fc.property(streams, forms, (stream, { format, streamed, whole }) => {
          const batches = metered(stream);
          const read = whole(format.encodeResponse(generationOf(batches), head));
          assert.deepEqual(streamed(streamOf(format, batches)), { read, error: undefined });
          checkWhole(read, stream);
        }),
        { numRuns: runs },
      );
    });

    if (said !== undefined)
      test('what a client reads is what the engine said', () => {
        fc.assert(fc.property(streams, said.check), { numRuns: said.runs });
      });

    test('the bytes of a stream do not depend on how it was cut into batches', () => {
      fc.assert(
        fc.property(streams, forms, (stream, { format }) => {
          const batches = metered(stream);
          const alone = batches.flat().map((event) => [event]);
          assert.equal(streamOf(format, batches), streamOf(format, alone));
        }),
        { numRuns: 200 },
      );
    });

    test(failure.title, () => {
      fc.assert(
        fc.property(streams, failure.forms ?? forms, fc.nat(), (stream, form, cut) => {
          const batches = metered(stream).slice(0, -1);
          const encoder = form.format.openStream(head);
          const sent = batches.slice(0, cut % (batches.length + 1)).map((batch) => encoder.batch(batch));
          failure.check(sent.join('') + encoder.error(failed), form);
        }),
        { numRuns: 200 },
      );
    });

    for (const name of streamCaseNames())
      for (const [wire, { streamed, whole, wholeError }] of Object.entries(fixtures))
        test(`the fixture ${name} reads the same both ways on ${wire}`, () => {
          const { sse, json } = print(readStreamCase(name), wires.get(wire)!);
          const { read, error } = streamed(sse);
          if (error === undefined) assert.deepEqual(read, whole(json));
          else assert.deepEqual(error, wholeError(json));
        });
  });
}

const wireError = (json: string): unknown => (JSON.parse(json) as { readonly error?: unknown }).error;

// --- chat completions

function chatFamily(): Family {
  const reader: Reader = {
    streamed: (sse) => {
      const read = readChatStream(sse);
      read.choices.sort((a, b) => a.index - b.index);
      return { read, error: read.error };
    },
    whole: readChatCompletion,
    wholeError: wireError,
  };
  return {
    name: 'chat',
    streams: legalStream,
    forms: fc.constant({ format: chatFormat, ...reader }),
    runs: 2000,
    checkWhole: (whole, stream) => assert.equal((whole as { choices: unknown[] }).choices.length, stream.choices),
    said: { runs: 2000, check: chatSaysWhatTheEngineSaid },
    failure: {
      title: 'after any number of batches a failure is a line of its own, then the end',
      check: (sse) => {
        const read = readChatStream(sse);
        assert.deepEqual([read.error, read.usage], [failed, undefined]);
      },
    },
    fixtures: { chat: reader },
  };
}

function chatSaysWhatTheEngineSaid(stream: LegalStream): void {
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
}

// --- completions

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

const formatOf = (fields: Asked): AnswerFormat =>
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

/** Streams whose choices are told of their prompts, with ids and with tokens that know where they begin. */
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
    const whole = covered([[...begun, ...prompts, ...texts, ...others], ...rest]);
    return { stream: { ...stream, batches: whole }, prompt: own };
  });

function completionsFamily(): Family {
  const promptRead = (read: ReadCompletion): ReadCompletion => {
    for (const choice of read.choices) choice.promptTokenIds ??= [];
    return read;
  };
  const reader: Reader = {
    streamed: (sse) => {
      const read = promptRead(readCompletionStream(sse));
      return { read, error: read.error };
    },
    whole: (json) => promptRead(readCompletion(json)),
    wholeError: wireError,
  };
  return {
    name: 'completions',
    streams: fc.oneof(
      legalStream,
      promptedStream.map(({ stream }) => stream),
    ),
    forms: asked.map((fields) => ({ format: formatOf(fields), ...reader })),
    runs: 1000,
    checkWhole: (whole, stream) => assert.equal((whole as ReadCompletion).choices.length, stream.choices),
    failure: {
      title: 'after any number of batches a failure is a line of its own, then the end',
      check: (sse) => {
        const read = readCompletionStream(sse);
        assert.deepEqual([read.error, read.usage], [failed, undefined]);
      },
    },
    fixtures: { completions: reader, 'completions-tokens': reader },
  };
}

test('completions: with echo the prompt is the beginning of the text, and offsets count its characters', () => {
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

function placed(tokens: readonly TokenLogprob[]): readonly TokenLogprob[] {
  let start = 0;
  return tokens.map((one) => {
    const at = start;
    start += one.token.length;
    return { ...one, start: at };
  });
}

// --- messages

function messagesFamily(): Family {
  const readerOf = (version: Generation): Reader => ({
    streamed: (sse) => {
      const { message, error } = readMessageStream(sse, version);
      return { read: message, error: (error as { readonly code: string } | undefined)?.code };
    },
    whole: (json) => JSON.parse(json) as unknown,
    wholeError: (json) => (wireError(json) as { readonly code: string } | undefined)?.code,
  });
  const formOf = (version: Generation, display: string): Form => ({
    version,
    format: messageFormat(version, display),
    ...readerOf(version),
    whole: (json) => {
      const whole: unknown = JSON.parse(json);
      assertMessageShape(whole, version);
      return whole;
    },
  });
  return {
    name: 'messages',
    streams: oneChoiceStream,
    forms: fc
      .tuple(fc.constantFrom<Generation>('2023-06-01', '2026-10-21'), fc.constantFrom('summarized', 'omitted'))
      .map(([version, display]) => formOf(version, display)),
    runs: 2000,
    checkWhole: () => {},
    said: { runs: 1000, check: messagesSayWhatTheEngineSaid },
    failure: {
      title: 'after any number of batches a failure is the last event, and no message_stop follows',
      check: checkFailedMessage,
    },
    fixtures: { messages: readerOf('2023-06-01'), 'messages-2026-10-21': readerOf('2026-10-21') },
  };
}

function messageFormat(version: Generation, display: string): AnswerFormat {
  const thinking = { type: 'adaptive', display };
  const body = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'x' }], thinking };
  return messages.decodeRequest(body, { headers: { 'anthropic-version': version }, items: undefined }).format;
}

function messagesSayWhatTheEngineSaid(stream: LegalStream): void {
  const { content, usage } = readMessage(stream);
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
}

function readMessage(stream: LegalStream) {
  const sse = streamOf(messageFormat('2023-06-01', 'summarized'), metered(stream));
  const { message } = readMessageStream(sse, '2023-06-01');
  assert.ok(message);
  return message;
}

function joined(texts: readonly string[]): string {
  return texts.join('');
}

function checkFailedMessage(sse: string, { version }: Form): void {
  assert.ok(version);
  const { error, types } = readMessageStream(sse, version);
  assert.deepEqual(error, { ...failed, type: 'timeout_error', details: { error_code: 'backend_timeout' } });
  assert.equal(types.at(-1), 'error');
  assert.ok(!types.includes('message_stop'));
}

// --- responses

function responsesFamily(): Family {
  const reader: Reader = {
    streamed: (sse) => {
      const { response: read, error } = readResponseStream(sse);
      if (error === undefined) return { read, error };
      const { param: _, ...reported } = error.error ?? {};
      return { read, error: reported };
    },
    whole: (json) => JSON.parse(json) as unknown,
    wholeError: wireError,
  };
  return {
    name: 'responses',
    streams: oneChoiceStream,
    forms: fc.constant({ format: fullResponseFormat(), ...reader }),
    runs: 2000,
    checkWhole: (whole) => assert.deepEqual(Object.keys(whole as WireResponse).toSorted(), responseKeys.toSorted()),
    said: { runs: 2000, check: responsesSayWhatTheEngineSaid },
    failure: {
      title: 'after any number of batches a failure is an error, a failed Response, and the end',
      check: checkFailedResponse,
      forms: fc.constant({ format: responseFormat({}), ...reader }),
    },
    fixtures: { responses: reader },
  };
}

function responseFormat(more: object): AnswerFormat {
  return responses.decodeRequest({ model: 'm', input: 'hi', ...more }, { headers: {}, items: undefined }).format;
}

function fullResponseFormat(): AnswerFormat {
  return responseFormat({
    include: ['reasoning.encrypted_content', 'message.output_text.logprobs'],
    metadata: { a: 'b\n\n' },
    tools: [{ type: 'web_search' }, { type: 'function', name: 'a', parameters: { type: 'object' } }],
  });
}

function responsesSayWhatTheEngineSaid(stream: LegalStream): void {
  const { response } = readResponseStream(streamOf(fullResponseFormat(), metered(stream)));
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
}

function textsOf({ output }: WireResponse, type: string): string {
  const items = output.filter((item) => item.type === type);
  return joined(items.map(textOf));
}

function checkFailedResponse(sse: string): void {
  const read = readResponseStream(sse);
  assert.equal(read.error?.['code'], 'backend_timeout');
  assert.equal(read.error['message'], 'a\n\nb');
  assert.equal(read.error['param'], null);
  assert.deepEqual(read.error.error, { ...failed, param: null });
  assert.deepEqual(read.response.error, { code: 'server_error', message: 'a\n\nb' });
  assert.equal(read.response.usage, null);
}

test('responses: what is kept of an answer, sent back, is what was answered', () => {
  const format = fullResponseFormat();
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

for (const family of [chatFamily(), completionsFamily(), messagesFamily(), responsesFamily()]) testFamily(family);
