import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Check } from 'typebox/schema';
import { createLlamaEngine, type LlamaEngine } from '../../../../src/inference/engines/llama/engine.ts';
import { Fold } from '../../../../src/generation/fold.ts';
import type { EngineRequest, Message, Tool } from '../../../../src/generation/request.ts';
import { chat, collect, never, openSampling, user } from './support.ts';

const toolOf = (name: string, description: string, parameters: object): Tool => ({
  type: 'function',
  name,
  description,
  parameters,
});
const weather = toolOf('get_weather', 'Says how the weather of a city is.', {
  type: 'object',
  properties: {
    city: { type: 'string', maxLength: 40 },
    unit: { type: 'string', enum: ['celsius', 'fahrenheit'] },
    days: { type: 'integer', minimum: 1, maximum: 7 },
  },
  required: ['city', 'unit', 'days'],
});
const order = toolOf('place_order', 'Orders things.', {
  type: 'object',
  properties: {
    items: {
      type: 'array',
      minItems: 1,
      maxItems: 3,
      items: {
        type: 'object',
        properties: { name: { type: 'string', maxLength: 20 }, amount: { type: 'integer' }, gift: { type: 'boolean' } },
        required: ['name', 'amount'],
      },
    },
    note: { type: ['string', 'null'], maxLength: 30 },
  },
  required: ['items'],
});
const now = toolOf('now', 'Says what time it is.', { type: 'object' });
const tools = [weather, order, now];

/** A real model that knows no tools: they are described in its prompt, and its calls are forced (§4.2.2). */
describe('forced calls of the default model', () => {
  let engine: LlamaEngine;
  before(async () => {
    const folder = process.env['TOKENHOUSE_MODEL_DIR'] ?? join(homedir(), '.cache', 'tokenhouse', 'models');
    const file = join(folder, 'SmolLM2-135M-Instruct.Q4_1.gguf');
    assert.equal(
      statSync(file, { throwIfNoEntry: false })?.size,
      98_362_432,
      `${file} is missing or not whole. Get it with \`npx tokenhouse models pull\`.`,
    );
    engine = createLlamaEngine({
      name: 'smollm2',
      modelFile: Promise.resolve(file),
      contextLength: 4096,
      slots: 1,
      threads: 1,
      defaultSystem: 'none',
      // The machine may be busy with other tests.
      firstTokenTimeoutMs: 600_000,
      idleTimeoutMs: 600_000,
      silenceMs: 120_000,
      log: () => {},
    });
    await engine.ready;
  });
  after(() => engine.close());

  async function ask(messages: readonly Message[], more: Partial<EngineRequest>) {
    const prompt = { type: 'messages', messages } as const;
    const { events } = await collect(engine, { ...chat(''), prompt, tools, maxTokens: 400, ...more }, never);
    const fold = new Fold();
    fold.read(events);
    const [choice] = fold.generation().choices;
    assert.ok(choice !== undefined);
    return choice;
  }

  const required = { toolChoice: { type: 'required' }, parallelToolCalls: false } as const;
  for (const [what, question, request] of [
    [
      'required, greedy',
      'What is the weather in Paris?',
      { ...required, sampling: { ...openSampling, temperature: 0 } },
    ],
    ['required, at random', 'Order three apples.', { ...required, sampling: { ...openSampling, seed: 7 } }],
    ...tools.map(
      ({ name }) =>
        [
          `${name} by its name`,
          'Tell me a joke.',
          { toolChoice: { type: 'function', name }, sampling: { ...openSampling, seed: 3 } },
        ] as const,
    ),
  ] as const) {
    test(`${what}: arguments parse and match their schema`, { timeout: 900_000 }, async () => {
      const { blocks, finish } = await ask([user(question)], request);
      assert.equal(finish.reason, 'tool-calls');
      const [block, ...others] = blocks;
      assert.deepEqual(others, []);
      assert.ok(block?.type === 'tool-call');
      const tool = tools.find(({ name }) => name === block.name);
      assert.ok(tool !== undefined);
      if (request.toolChoice.type === 'function') assert.equal(block.name, request.toolChoice.name);
      const args: unknown = JSON.parse(block.arguments);
      assert.ok(Check(tool.parameters as object, args), block.arguments);
    });
  }

  test('a result is answered in the next turn', { timeout: 900_000 }, async () => {
    const call = { id: 'call_1', name: 'get_weather', arguments: '{"city": "Paris", "unit": "celsius", "days": 1}' };
    const { blocks, finish } = await ask(
      [
        user('What is the weather in Paris?'),
        { role: 'assistant', content: [], reasoning: [], toolCalls: [call] },
        { role: 'tool', toolCallId: 'call_1', content: [{ type: 'text', text: '18 degrees, sunny' }] },
      ],
      { toolChoice: { type: 'none' }, sampling: { ...openSampling, temperature: 0 }, maxTokens: 60 },
    );
    assert.ok(finish.reason === 'stop' || finish.reason === 'length');
    assert.ok(blocks.length > 0 && blocks.every(({ type }) => type === 'text'));
  });
});
