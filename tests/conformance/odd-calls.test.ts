/** Whatever way a server says its calls, every family gives the same ones, streamed and whole. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { chatFormat } from '../../src/inference/dialects/chat/chat.ts';
import { Blocks } from '../../src/inference/dialects/blocks.ts';
import type { AnswerFormat } from '../../src/inference/dialects/dialect.ts';
import { messages } from '../../src/inference/dialects/messages/messages.ts';
import { responses } from '../../src/inference/dialects/responses/responses.ts';
import type { GenerationBatch, GenerationEvent } from '../../src/generation/event.ts';
import { newDecoder } from '../inference/engines/openai/decoding.ts';
import { oddCalls, oddTools, type OddCalls } from '../support/odd-calls.ts';
import { readChatCompletion, readChatStream } from './chat-reader.ts';
import { readMessageStream } from './messages-reader.ts';
import { readResponseStream } from './responses-reader.ts';
import { generationOf, head, metered, streamOf } from './whole-and-streamed.ts';

interface GivenCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}
type Given = { readonly calls: readonly GivenCall[]; readonly text: string };

interface Item {
  readonly type: string;
  readonly id?: string;
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
  readonly input?: unknown;
  readonly text?: string;
  readonly content?: readonly { readonly text?: string }[];
}

const families: Readonly<
  Record<string, { format: AnswerFormat; streamed(sse: string): Given; whole(json: string): Given }>
> = {
  chat: {
    format: chatFormat,
    streamed: (sse) => ofChat(readChatStream(sse)),
    whole: (json) => ofChat(readChatCompletion(json)),
  },
  messages: {
    format: messages.decodeRequest(
      { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'x' }] },
      { headers: { 'anthropic-version': '2023-06-01' }, items: undefined },
    ).format,
    streamed: (sse) => ofMessage(readMessageStream(sse, '2023-06-01').message as never),
    whole: (json) => ofMessage(JSON.parse(json) as never),
  },
  responses: {
    format: responses.decodeRequest({ model: 'm', input: 'hi' }, { headers: {}, items: undefined }).format,
    streamed: (sse) => ofResponse(readResponseStream(sse).response as never),
    whole: (json) => ofResponse(JSON.parse(json) as never),
  },
};

type ReadChat = ReturnType<typeof readChatStream>;

const ofChat = ({ choices: [choice] }: ReadChat): Given => ({
  calls: (choice?.toolCalls ?? []).map(({ id, name, arguments: own }) => ({ id, name, arguments: own })),
  text: choice?.content ?? '',
});

const ofMessage = ({ content }: { readonly content: readonly Item[] }): Given => ({
  calls: content.flatMap(({ type, id = '', name = '', input }) =>
    type === 'tool_use' ? [{ id: id.replace('toolu_', 'call_'), name, arguments: JSON.stringify(input) }] : [],
  ),
  text: content.map(({ text = '' }) => text).join(''),
});

const ofResponse = ({ output }: { readonly output: readonly Item[] }): Given => ({
  calls: output.flatMap(({ type, call_id: id = '', name = '', arguments: own = '' }) =>
    type === 'function_call' ? [{ id, name, arguments: own }] : [],
  ),
  text: output.flatMap(({ content = [] }) => content.map(({ text = '' }) => text)).join(''),
});

describe('calls of odd servers', () => {
  test('are the same in every family, streamed and whole', () => {
    fc.assert(
      fc.property(fc.nat(), (seed) => checkFamilies(oddCalls(seed))),
      { numRuns: 200 },
    );
  });

  test('are the known ones, one after the other, in whatever way they are said', () => {
    fc.assert(
      fc.property(fc.nat(), (seed) => checkEvents(oddCalls(seed))),
      { numRuns: 5_000 },
    );
  });
});

/** Nothing stands between a call and its last arguments. */
function checkEvents(odd: OddCalls): void {
  for (const batches of [streamedEvents(odd), wholeEvents(odd)]) {
    const blocks = new Blocks();
    for (const event of batches.flat()) blocks.read(event);
    // Until the prompt is known, the pipeline has an estimate for it.
    const events = batches.map((batch) => batch.filter(({ type }) => type !== 'usage'));
    const given = generationOf(events).choices[0]!.blocks;
    const calls = given.flatMap((block) => (block.type === 'tool-call' ? [block] : []));
    const text = given.map((block) => (block.type === 'text' ? block.text : '')).join('');
    check(odd, { calls, text }, 'events');
  }
}

function checkFamilies(odd: OddCalls): void {
  for (const batches of [streamedEvents(odd), wholeEvents(odd)]) {
    const passed = metered({
      choices: 1,
      batches,
      usage: { promptTokens: 9, cachedTokens: 0, completionTokens: 9, reasoningTokens: 0 },
    });
    for (const [name, { format, streamed, whole }] of Object.entries(families)) {
      check(odd, streamed(streamOf(format, passed)), `${name}, streamed`);
      check(odd, whole(format.encodeResponse(generationOf(passed), head)), `${name}, whole`);
    }
  }
}

function check({ calls, oddities, text }: OddCalls, given: Given, what: string): void {
  const why = `${what}: ${JSON.stringify(oddities)}`;
  const plain = ({ name, arguments: own }: GivenCall) => [name, JSON.parse(own) as unknown];
  const wanted = calls.map((call) => ({ ...call, arguments: call.arguments === '' ? '{}' : call.arguments }));
  assert.deepEqual(given.calls.map(plain), wanted.map(plain), why);
  const ids = given.calls.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, why);
  if (oddities.id === 'own')
    assert.deepEqual(
      ids,
      calls.map(({ id }) => id),
      why,
    );
  assert.equal(given.text, text, why);
}

/** A batch for each chunk. */
function streamedEvents({ deltas, message }: OddCalls): readonly GenerationBatch[] {
  const decoder = newDecoder({ toolNames: oddTools });
  const batches: GenerationEvent[][] = [];
  const chunks = [
    ...deltas.map((delta) => ({ index: 0, delta, finish_reason: null })),
    { index: 0, ...(message === undefined ? { delta: {} } : { message }), finish_reason: 'tool_calls' },
  ];
  for (const choice of chunks) {
    decoder.event(JSON.stringify({ choices: [choice] }), '');
    batches.push([...decoder.drain()]);
  }
  decoder.event(JSON.stringify({ choices: [], usage: { prompt_tokens: 9, completion_tokens: 9 } }), '');
  batches.push([...decoder.drain()]);
  return batches.filter((batch) => batch.length > 0);
}

function wholeEvents({ whole }: OddCalls): readonly GenerationBatch[] {
  const decoder = newDecoder({ toolNames: oddTools });
  const choices = [{ index: 0, message: whole, finish_reason: 'tool_calls' }];
  decoder.whole(JSON.stringify({ choices, usage: { prompt_tokens: 9, completion_tokens: 9 } }));
  return [decoder.drain()];
}
