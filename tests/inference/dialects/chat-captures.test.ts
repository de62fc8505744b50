import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { decodeChatRequest } from '../../../src/inference/dialects/chat/request.ts';
import type { GenerationRequest, Message } from '../../../src/generation/request.ts';
import { inRepository } from '../../support/repository.ts';
import { chatRequest } from '../pipeline/models.ts';

const folder = inRepository('tests', 'fixtures', 'wire', 'chat');

interface Capture {
  readonly request: { readonly method: string; readonly url: string; readonly body: Record<string, unknown> };
}

const user = (text: string): Message => ({ role: 'user', content: [{ type: 'text', text }] });

const absent: GenerationRequest = {
  model: 'fake-model',
  stream: false,
  prompt: { type: 'messages', messages: [user('hi')] },
  choices: 1,
  maxTokens: undefined,
  sampling: {
    temperature: undefined,
    topP: undefined,
    topK: undefined,
    minP: undefined,
    presencePenalty: undefined,
    frequencyPenalty: undefined,
    repetitionPenalty: undefined,
    seed: undefined,
  },
  stop: [],
  tools: [],
  tier: undefined,
  toolChoice: undefined,
  parallelToolCalls: undefined,
  constraint: undefined,
  effort: undefined,
  preserveThinking: false,
  at: chatRequest().at,
  logprobs: undefined,
  logitBias: undefined,
};

const prompt = (...messages: readonly Message[]): GenerationRequest['prompt'] => ({ type: 'messages', messages });

/** A round of the weather tool, as three clients send it back. */
const toolRound = (id: string, result: string, thought?: string): GenerationRequest['prompt'] =>
  prompt(
    user('weather tool'),
    {
      role: 'assistant',
      content: [],
      reasoning: thought === undefined ? [] : [{ text: thought, signature: undefined }],
      toolCalls: [{ id, name: 'get_weather', arguments: '{"location":"text"}' }],
    },
    { role: 'tool', toolCallId: id, content: [{ type: 'text', text: result }] },
  );

const weather = (description: string | undefined, parameters: unknown) => [
  { type: 'function', name: 'get_weather', description, parameters },
];

/** The schemas of the captures come through unchanged, whatever they hold. */
const parametersOf = (capture: Capture): unknown => at(capture.request.body, 'tools', 0, 'function', 'parameters');
const schemaOf = (capture: Capture): unknown => at(capture.request.body, 'response_format', 'json_schema', 'schema');

const expectations: Readonly<Record<string, (capture: Capture) => GenerationRequest>> = {
  'openai-node-01-chat-stream': () => ({ ...absent, stream: true }),
  // Integers of zod 4 carry the bounds of safe integers.
  'openai-node-02-chat-parse-zod': (capture) => ({
    ...absent,
    prompt: prompt(user('x')),
    constraint: { type: 'json-schema', name: 's', schema: schemaOf(capture) },
  }),
  'openai-node-03-chat-runtools-2nd': (capture) => ({
    ...absent,
    prompt: toolRound('call_d3a9f54e01a3f0cc310043ff', 'sunny text'),
    tools: weather(undefined, parametersOf(capture)),
    toolChoice: { type: 'auto' },
  }),
  'ai-sdk-01-compat-stream': () => ({ ...absent, stream: true }),
  'ai-sdk-02-compat-tools': (capture) => ({
    ...absent,
    stream: true,
    prompt: prompt(user('weather tool')),
    tools: weather('w', parametersOf(capture)),
    toolChoice: { type: 'auto' },
  }),
  'ai-sdk-03-compat-tool-result': (capture) => ({
    ...absent,
    stream: true,
    prompt: toolRound('call_0abe5b5e593a7f21cbdbed5f', 'sunny text'),
    tools: weather('w', parametersOf(capture)),
    toolChoice: { type: 'auto' },
  }),
  'ai-sdk-04-compat-object': (capture) => ({
    ...absent,
    prompt: prompt(user('x')),
    constraint: { type: 'json-schema', name: 'response', schema: schemaOf(capture) },
  }),
  'ai-sdk-05-compat-reasoning': () => ({ ...absent, effort: { type: 'tier', value: 'high', at: 'reasoning_effort' } }),
  'ai-sdk-06-compat-image-pdf': () => ({
    ...absent,
    prompt: prompt({
      role: 'user',
      content: [
        { type: 'text', text: 'what' },
        { type: 'image-url', url: 'data:image/png;base64,iVBORw0KGgo=', at: 'messages[0].content[1].image_url.url' },
        {
          type: 'file',
          fileId: undefined,
          data: 'data:application/pdf;base64,JVBERi0xLjE=',
          filename: 'a.pdf',
          at: 'messages[0].content[2].file.file_data',
        },
      ],
    }),
  }),
  'ai-sdk-20-compat-reasoning-replayed': (capture) => ({
    ...absent,
    prompt: toolRound('call_e470b3cfe116c379a198e436', 'sunny', 'I should think about it.'),
    tools: weather('w', parametersOf(capture)),
    toolChoice: { type: 'auto' },
    effort: { type: 'tier', value: 'high', at: 'reasoning_effort' },
  }),
  'langchain-01-chat-tools': (capture) => ({
    ...absent,
    prompt: prompt(user('weather tool')),
    tools: weather('w', parametersOf(capture)),
  }),
  'langchain-02-chat-structured': (capture) => ({
    ...absent,
    prompt: prompt(user('x')),
    constraint: { type: 'json-schema', name: 'out', schema: schemaOf(capture) },
  }),
};

for (const [name, expected] of Object.entries(expectations)) {
  test(`${name} is understood`, () => {
    const capture = JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8')) as Capture;
    assert.equal(`${capture.request.method} ${capture.request.url}`, 'POST /v1/chat/completions');
    assert.deepEqual(decodeChatRequest(capture.request.body), expected(capture));
  });
}

test('every capture has an expectation', () => {
  assert.deepEqual(
    readdirSync(folder).sort(),
    Object.keys(expectations)
      .map((name) => `${name}.json`)
      .sort(),
  );
});

function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  const found = path.reduce<unknown>((inner, step) => (inner as Record<string | number, unknown>)[step], value);
  assert.notEqual(found, undefined, path.join('.'));
  return found;
}
