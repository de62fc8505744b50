/**
 * The recordings in tests/fixtures/upstream/llama-server, from which the ordinary tests live, are still what a llama-server
 * says: each request is made again. Everything that was recorded must be there, with the same type, and with the same value
 * where the value is a word of the protocol; what a newer server adds is no fault.
 */
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';

import { answerError } from '../../../src/inference/engines/openai/failures.ts';
import { flavors } from '../../../src/inference/engines/openai/flavors/flavors.ts';
import type { GenerationEvent } from '../../../src/generation/event.ts';
import { decode, recordedJson, recording } from '../../inference/engines/openai/decoding.ts';
import { LlamaServer, TinyModels, stopServer } from './llama-server.ts';
import { inRepository } from '../../support/repository.ts';

const folder = inRepository('tests/fixtures/upstream/llama-server/');
const names = readdirSync(folder).toSorted();

/** The models on which the recordings were made, by the beginning of the recordings' names. */
const scripts = {
  text: [
    ['assistant\n', '<think>', '\nShort thought.', '\n', '</think>', '\n\n'].concat([
      ...['Hello', ' from', ' the', ' scripted', ' model', '.', '<|im_end|>'],
    ]),
  ],
  tool: [
    [
      'assistant\n',
      '<think>',
      '\nThe user wants the weather.',
      ' I will call the tool.',
      '\n',
      '</think>',
      '\n\n',
    ].concat([
      ...['<tool_call>', '\n{"name": "get_weather", ', '"arguments": {"city": "Paris"', '}}\n'],
      ...['</tool_call>', '<|im_end|>'],
    ]),
  ],
};
const models = new TinyModels();
const servers = new Map<string, LlamaServer>();
before(async () => {
  const start = async (name: string, script: readonly (readonly string[])[], contextLength: number, more: string[]) => {
    const modelFile = models.write(`recordings-${name}`, { script });
    servers.set(name, await LlamaServer.start({ modelFile, slots: 2, contextLength, arguments: more }));
  };
  await start('text', scripts.text, 2048, []);
  await start('tool', scripts.tool, 2048, []);
  await start('small', scripts.text, 512, []);
  await start('key', scripts.text, 512, ['--api-key', 'secret']);
});
after(async () => {
  await Promise.all([...servers.values()].map((server) => stopServer(server)));
  models.dispose();
});

function serverFor(name: string): LlamaServer {
  const kind = /^tool/.test(name)
    ? 'tool'
    : /^err-context/.test(name)
      ? 'small'
      : /^err-no-key/.test(name)
        ? 'key'
        : 'text';
  const server = servers.get(kind);
  assert.ok(server);
  return server;
}

describe('recorded answers', () => {
  // What it says while it loads is in loading.test.ts.
  for (const name of names.filter((file) => file.endsWith('.json') && file !== 'loading-chat.json')) {
    test(name, async () => {
      const recorded = recordedJson(name);
      const { method, path, body } = recorded.request as { method: string; path: string; body: unknown };
      const response = await fetch(serverFor(name).origin + path, {
        method,
        headers: { 'content-type': 'application/json' },
        ...(method === 'GET' ? {} : { body: JSON.stringify(body) }),
      });
      const present: unknown = await response.json();
      assert.equal(response.status, recorded.status);
      assert.equal(response.headers.get('content-type'), recorded.headers['content-type']);
      // A model with random weights ended this one; the scripted ones are cut.
      const isOfAnother = name === 'completions-legacy.json';
      const found = faults(recorded.body, present).filter((fault) => !isOfAnother || !fault.includes('finish_reason'));
      assert.deepEqual(found, [], JSON.stringify(present));
      if (recorded.status < 400) return;
      const seen = (answer: unknown) => {
        const error = answerError(
          { status: recorded.status, retryAfter: undefined, body: answer },
          flavors['llama-server'],
          'm',
        );
        return [error.code, Object.keys(error.extra)];
      };
      assert.deepEqual(seen(present), seen(recorded.body), 'it means the same to us');
    });
  }
});

describe('recorded streams', () => {
  for (const name of names.filter((file) => file.endsWith('.sse'))) {
    test(name, async () => {
      const [line = ''] = readFileSync(folder + name, 'utf8').split('\n', 1);
      const [, path = '', body = ''] = /^: POST (\S+) (.*)$/.exec(line) ?? [];
      const response = await fetch(serverFor(name).origin + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      });
      assert.equal(response.status, 200);
      assert.equal(response.headers.get('content-type'), 'text/event-stream');
      const present = Buffer.from(await response.arrayBuffer());
      assert.deepEqual(kindsOf(present), kindsOf(recording(name)));
      const settings = { closingUsage: 'per-choice', logprobs: name.includes('logprobs') ? 20 : undefined } as const;
      const [now, then] = [decode([present], settings), decode([recording(name)], settings)];
      assert.equal(now.failure, undefined);
      assert.deepEqual(saidOf(now.events), saidOf(then.events));
    });
  }
});

test('the comparison finds what is missing and what is something else', () => {
  const recorded = { object: 'list', data: [{ id: 'a', n: 1 }], error: { code: 400 } };
  assert.deepEqual(faults(recorded, { ...recorded, more: true }), []);
  assert.deepEqual(faults(recorded, { object: 'list', data: [], error: { code: 400 } }), ['data is empty']);
  assert.deepEqual(faults(recorded, { object: 'map', data: [{ id: 'b', n: '1' }], error: { code: 401 } }), [
    'object is "map", was "list"',
    'data[0].n is a string, was a number',
    'error.code is 401, was 400',
  ]);
  assert.deepEqual(faults(recorded, { object: 'list' }), ['data is missing', 'error is missing']);
});

/** Words of the protocol: a client decides by them. */
const exact = new Set(['object', 'finish_reason', 'role', 'type', 'index', 'code']);

function faults(recorded: unknown, present: unknown, at = ''): string[] {
  if (kindOf(recorded) !== kindOf(present)) return [`${at} is ${kindOf(present)}, was ${kindOf(recorded)}`];
  if (Array.isArray(recorded) && Array.isArray(present)) {
    if (recorded.length === 0) return [];
    return present.length === 0 ? [`${at} is empty`] : faults(recorded[0], present[0], `${at}[0]`);
  }
  if (typeof recorded !== 'object' || recorded === null) return [];
  return Object.entries(recorded).flatMap(([key, value]) => {
    const path = at === '' ? key : `${at}.${key}`;
    const other = (present as Readonly<Record<string, unknown>>)[key];
    if (other === undefined) return [`${path} is missing`];
    if (exact.has(key) && typeof value !== 'object' && typeof other === typeof value && other !== value)
      return [`${path} is ${JSON.stringify(other)}, was ${JSON.stringify(value)}`];
    return faults(value, other, path);
  });
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/** What kinds of events a stream has, in their order; a run of one kind counts once. */
function kindsOf(stream: Buffer): readonly string[] {
  const kinds = [...stream.toString().matchAll(/^data: (.*)$/gm)].map(([, data = '']) => {
    if (data === '[DONE]') return data;
    const chunk = JSON.parse(data) as {
      object: string;
      choices: readonly { delta: object; finish_reason: string | null; logprobs?: unknown }[];
      usage?: object;
      timings?: object;
      prompt_progress?: object;
    };
    const [choice] = chunk.choices;
    return [
      chunk.object,
      ...(choice === undefined ? ['no choice'] : Object.keys(choice.delta)),
      ...(choice?.finish_reason === null || choice === undefined ? [] : [`finish ${choice.finish_reason}`]),
      ...(choice?.logprobs ? ['logprobs'] : []),
      ...(['usage', 'timings', 'prompt_progress'] as const).filter((field) => chunk[field] !== undefined),
    ].join(' ');
  });
  return kinds.filter((kind, index) => kind !== kinds[index - 1]);
}

/** What a stream says, however it is cut; ids are random, and figures of a prompt depend on the vocabulary. */
function saidOf(events: readonly GenerationEvent[]): unknown {
  const join = (type: 'text' | 'reasoning' | 'tool-arguments'): string =>
    events.map((event) => (event.type === type && 'text' in event ? event.text : '')).join('');
  return {
    text: join('text'),
    reasoning: join('reasoning'),
    arguments: join('tool-arguments'),
    calls: events.flatMap((event) => (event.type === 'tool-call' ? [event.name] : [])),
    finish: events.flatMap((event) => (event.type === 'finish' ? [event.reason] : [])),
    usage: events.flatMap((event) => (event.type === 'usage' ? [Object.keys(event.usage), event.counted] : [])),
  };
}
