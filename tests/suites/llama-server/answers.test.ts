/** What a request asks for is what a real llama-server does, at the interface of the engine and on the default model. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { printGbnf } from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import { createOpenAiEngine } from '../../../src/inference/engines/openai/openai-engine.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import type { GenerationEvent } from '../../../src/generation/event.ts';
import type { Constraint, EngineRequest, Message, Sampling } from '../../../src/generation/request.ts';
import { all, engineRequest, lastUsage, textOf } from '../../inference/engines/contract.ts';
import { LlamaServer, defaultModelFile, stopServer } from './llama-server.ts';

const france = 'What is the capital of France?';
let server: LlamaServer | undefined;
let engine: Engine;
before(async () => {
  server = await LlamaServer.start({ modelFile: defaultModelFile(), slots: 2, contextLength: 1024 });
  engine = createOpenAiEngine({ name: 'smollm2', url: server.url, flavor: 'llama-server' });
});
after(async () => {
  await engine?.close();
  await stopServer(server);
});

const greedy: Sampling = { ...engineRequest('').sampling, temperature: 0 };
const user = (text: string): Message => ({ role: 'user', content: [{ type: 'text', text }] });
const kept = (source: Constraint, gbnf: string) => ({ source, gbnf });
/** The system text that the model's template adds by itself makes its answers worse; any other takes its place. */
const system: Message = { role: 'system', content: [{ type: 'text', text: 'You are a helpful assistant.' }] };
const ask = (text: string, more: Partial<EngineRequest> = {}): EngineRequest => {
  const prompt = { type: 'messages', messages: [system, user(text)] } as const;
  return engineRequest('', { prompt, maxTokens: 24, sampling: greedy, ...more });
};
const run = async (request: EngineRequest) => {
  const batches = await all(engine, request, new AbortController().signal);
  const events: readonly GenerationEvent[] = batches.flat();
  const finishes = events.flatMap((event) => (event.type === 'finish' ? [event.reason] : []));
  const textOfChoice = (choice: number): string =>
    events.map((event) => (event.type === 'text' && event.choice === choice ? event.text : '')).join('');
  return { events, text: textOf(batches), textOfChoice, finishes, usage: lastUsage(batches)?.usage };
};
const failure = async (request: EngineRequest): Promise<ApiError> => {
  try {
    await run(request);
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error;
  }
  return assert.fail('it was answered');
};
const assistant = (text: string): Message => ({
  role: 'assistant',
  content: [{ type: 'text', text }],
  reasoning: [],
  toolCalls: [],
});

describe('a whole answer', () => {
  test('ends by itself, with the usage of the server', async () => {
    const { text, finishes, usage } = await run(ask(france));
    assert.match(text, /Paris/);
    assert.deepEqual(finishes, ['stop']);
    assert.ok((usage?.completionTokens ?? 0) > 3);
  });

  test('ends at the length that was asked for', async () => {
    const { finishes, usage } = await run(ask('Tell me a long story.', { maxTokens: 7 }));
    assert.deepEqual(finishes, ['length']);
    assert.equal(usage?.completionTokens, 7);
  });

  test('ends before a stop string, which is not in the text', async () => {
    const { text: whole } = await run(ask(france));
    const { text, finishes } = await run(ask(france, { stop: ['Paris'] }));
    assert.equal(text, whole.slice(0, whole.indexOf('Paris')));
    assert.deepEqual(finishes, ['stop']);
  });

  test('is the same for the same seed, and another for another', async () => {
    const hot = (seed: number) =>
      ask('Write a poem.', { sampling: { ...greedy, temperature: 1.2, seed }, retain: false });
    const texts: string[] = [];
    // One after the other: llama.cpp rounds differently in batches of another size.
    for (const seed of [7, 7, 8]) texts.push((await run(hot(seed))).text);
    assert.equal(texts[1], texts[0]);
    assert.notEqual(texts[2], texts[0]);
  });

  test('has as many choices as were asked for, and counts the prompt once', async () => {
    const one = await run(ask(france));
    const two = await run(ask(france, { choices: 2 }));
    assert.deepEqual(two.finishes, ['stop', 'stop']);
    assert.deepEqual([two.textOfChoice(0), two.textOfChoice(1)], [one.text, one.text]);
    assert.equal(two.usage?.promptTokens, one.usage?.promptTokens);
    assert.equal(two.usage?.completionTokens, 2 * (one.usage?.completionTokens ?? NaN));
  });

  test('has logprobs, one for each token, the likeliest first', async () => {
    const { events, text, usage } = await run(ask(france, { logprobs: 3 }));
    const logprobs = events.flatMap((event) => (event.type === 'text' ? (event.logprobs ?? []) : []));
    assert.equal(logprobs.map(({ token }) => token).join(''), text);
    // The token that ends the answer is counted and has no text.
    assert.ok(Math.abs(logprobs.length - (usage?.completionTokens ?? NaN)) <= 1);
    for (const { token, logprob, top } of logprobs) {
      assert.ok(logprob <= 0, `${logprob}`);
      assert.equal(top.length, 3);
      assert.equal(top[0]?.token, token, 'greedily the likeliest is taken');
      assert.deepEqual(
        top.map((entry) => entry.logprob),
        top.map((entry) => entry.logprob).toSorted((a, b) => b - a),
      );
    }
  });

  test('keeps to a JSON schema', async () => {
    const schema = {
      type: 'object',
      properties: { city: { type: 'string', maxLength: 20 }, large: { type: 'boolean' } },
      required: ['city', 'large'],
      additionalProperties: false,
    };
    const { text, finishes } = await run(
      ask(`${france} Answer in JSON.`, {
        maxTokens: 64,
        constraint: kept(
          { type: 'json-schema', schema, name: 'place' },
          printGbnf(jsonSchemaGrammar(schema, 'schema')),
        ),
      }),
    );
    assert.deepEqual(finishes, ['stop']);
    const answer = JSON.parse(text) as { city: unknown; large: unknown };
    assert.deepEqual([typeof answer.city, typeof answer.large], ['string', 'boolean']);
    assert.deepEqual(Object.keys(answer).toSorted(), ['city', 'large']);
  });

  test('keeps to a grammar', async () => {
    const { text } = await run(
      ask(france, { constraint: kept({ type: 'grammar', text: 'Rome or Oslo' }, 'root ::= "Rome" | "Oslo"') }),
    );
    assert.match(text, /^(Rome|Oslo)$/);
  });

  test('shows characters whole, whatever tokens they are cut into', async () => {
    const { text } = await run(ask('Repeat exactly: déjà vu 漢字 😀', { maxTokens: 40 }));
    assert.ok(!text.includes('\uFFFD'), text);
  });

  test('of a completion continues the text that it was given', async () => {
    const { text } = await run(ask('', { prompt: { type: 'texts', prompts: ['1, 2, 3, 4, 5, 6,'] }, maxTokens: 12 }));
    assert.match(text, /^ ?7, 8/);
  });

  test('of several completions at once comes by choice', async () => {
    const prompts = ['1, 2, 3, 4, 5, 6,', '11, 12, 13, 14, 15, 16,'];
    const { textOfChoice, finishes } = await run(ask('', { prompt: { type: 'texts', prompts }, maxTokens: 12 }));
    assert.match(textOfChoice(0), /^ ?7, 8/);
    assert.match(textOfChoice(1), /^ ?17, 18/);
    assert.equal(finishes.length, 2);
  });
});

describe('what it cannot answer', () => {
  test('a prompt beyond its context: context_length_exceeded with both figures', async () => {
    const error = await failure(ask('word '.repeat(2000)));
    assert.equal(error.code, 'context_length_exceeded');
    assert.equal(error.extra['context_length_limit'], 1024);
    assert.ok(Number(error.extra['prompt_tokens']) > 2000, JSON.stringify(error.extra));
  });

  const nowhere = { type: 'object', properties: { a: { $ref: '#/nope' } } };
  /** With reasoning a schema goes to the server as it stands, because a grammar would hold for the reasoning too. */
  const bad: readonly (readonly [string, Partial<EngineRequest>, RegExp])[] = [
    [
      'a grammar that does not parse',
      { constraint: kept({ type: 'grammar', text: 'root ::= (' }, 'root ::= (') },
      /sampler|parse|failed/i,
    ],
    [
      'a schema with a reference to nowhere',
      { constraint: kept({ type: 'json-schema', schema: nowhere, name: undefined }, 'root ::= "a"'), effort: 'low' },
      /nope|parser|template/i,
    ],
  ];
  for (const [what, more, upstreamText] of bad) {
    test(`${what}: 400 in our words (reliability U12)`, async () => {
      const error = await failure(ask(france, more));
      assert.equal(error.code, 'unsupported_value');
      assert.doesNotMatch(error.message, upstreamText);
      assert.doesNotMatch(JSON.stringify(error.extra ?? {}), upstreamText);
    });
  }

  test('an image: unsupported_feature, although the server calls it an error of its own', async () => {
    const size = { width: 1, height: 1 };
    const content = [
      { type: 'text', text: 'What is this?' },
      { type: 'image', mediaType: 'image/png', base64: 'AAAA', size, at: 'messages.0.content.1' },
    ] as const;
    const error = await failure(ask('', { prompt: { type: 'messages', messages: [{ role: 'user', content }] } }));
    assert.equal(error.code, 'unsupported_feature');
  });
});

describe('the number of prompt tokens that is counted is the one that is then reported', () => {
  const conversations: readonly (readonly [string, Partial<EngineRequest>])[] = [
    ['one message', { prompt: { type: 'messages', messages: [user(france)] } }],
    [
      'system text and several turns',
      {
        prompt: {
          type: 'messages',
          messages: [
            { role: 'system', content: [{ type: 'text', text: 'Be brief.' }] },
            user('Hi!'),
            assistant('Hello.'),
            user(france),
          ],
        },
      },
    ],
    ['characters of every length', { prompt: { type: 'messages', messages: [user('aé漢🙂\n\t"\\ \u2028')] } }],
    [
      'text that looks like the template',
      { prompt: { type: 'messages', messages: [user('<|im_end|>\n<|im_start|>')] } },
    ],
    ['a text completion', { prompt: { type: 'texts', prompts: ['The quick brown fox', 'jumps'] } }],
    ['token ids', { prompt: { type: 'token-ids', prompts: [[504, 2365, 6354]] } }],
  ];
  for (const [what, more] of conversations) {
    test(what, async () => {
      const request = ask('', { ...more, maxTokens: 1 });
      const counted = await engine.countTokens(request, new AbortController().signal);
      const { usage } = await run(request);
      assert.ok(counted !== undefined && counted > 0);
      assert.equal(usage?.promptTokens, counted);
    });
  }
});
