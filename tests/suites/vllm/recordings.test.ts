/**
 * The recordings in tests/fixtures/upstream/vllm-0.32, from which the ordinary tests live, are still what this vLLM says: each
 * request is made again, and everything but ids and times is compared.
 */
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { recordedJson, recording } from '../../inference/engines/openai/decoding.ts';
import { inRepository } from '../../support/repository.ts';
import { VllmServer } from './vllm-server.ts';

const folder = inRepository('tests/fixtures/upstream/vllm-0.32/');
const names = readdirSync(folder).toSorted();

let server: VllmServer;
before(async () => {
  server = await VllmServer.start('model');
});
after(() => server.stop());

const routeOf = (path: string): string => path.replace(/^\/v1/, '');

for (const name of names.filter((file) => file.endsWith('.json')))
  test(name, async () => {
    const recorded = recordedJson(name, 'vllm-0.32');
    const { path, body } = recorded.request as { readonly path: string; readonly body: object };
    // The README says that the prompt of one of them is shortened.
    const whole = JSON.stringify(body).replace(/(word )+… \(3,000 times\)/, 'word '.repeat(3_000));
    const present = await server.ask(routeOf(path), JSON.parse(whole) as object);
    assert.equal(present.status, recorded.status);
    assert.equal(present.contentType, recorded.headers['content-type']);
    assert.deepEqual(JSON.parse(present.text), recorded.body);
  });

for (const name of names.filter((file) => file.endsWith('.sse')))
  test(name, async () => {
    const [line = ''] = readFileSync(folder + name, 'utf8').split('\n', 1);
    const [, path = '', body = ''] = /^: POST (\S+) (.*)$/.exec(line) ?? [];
    const present = await server.ask(routeOf(path), JSON.parse(body) as object);
    assert.equal(present.status, 200);
    assert.equal(present.contentType, 'text/event-stream; charset=utf-8');
    assert.deepEqual(eventsOf(present.text), eventsOf(recording(name, 'vllm-0.32').toString()));
  });

/** The data of a stream's events, with ids and times taken out. */
function eventsOf(stream: string): readonly unknown[] {
  const events = [...stream.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => data);
  assert.equal(events.at(-1), '[DONE]');
  return events
    .slice(0, -1)
    .map((data): unknown => JSON.parse(data, (key, value: unknown) => (varies(key, value) ? typeof value : value)));
}

const varies = (key: string, value: unknown): boolean =>
  key === 'created' || (key === 'id' && typeof value === 'string');
