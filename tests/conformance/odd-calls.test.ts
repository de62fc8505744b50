/** Whatever way a server says its calls, every family gives the same ones, streamed and whole. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Blocks } from '../../src/inference/dialects/blocks.ts';
import type { GenerationBatch, GenerationEvent } from '../../src/generation/event.ts';
import { newDecoder } from '../inference/engines/openai/decoding.ts';
import { oddCalls, oddTools, type OddCalls } from '../support/odd-calls.ts';
import { chatFamilies, type GivenCall, type GivenChoice } from './answer-families.ts';
import { generationOf, head, metered, streamOf } from './whole-and-streamed.ts';

type Given = Pick<GivenChoice, 'calls' | 'text'>;

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
    for (const [name, { format, streamed, whole }] of Object.entries(chatFamilies)) {
      check(odd, streamed(streamOf(format, passed)).choices[0]!, `${name}, streamed`);
      check(odd, whole(format.encodeResponse(generationOf(passed), head)).choices[0]!, `${name}, whole`);
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
