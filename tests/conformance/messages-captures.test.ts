import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { InnerService } from '../support/service.ts';
import { readMessageStream } from './messages-reader.ts';
import { assertMessageShape } from './messages-shape.ts';
import type { Generation } from './messages-shape.ts';
import { inRepository } from '../support/repository.ts';

/** Requests that unmodified clients really sent to messages, replayed: each gets a valid answer. */
const folder = inRepository('tests', 'fixtures', 'wire', 'messages');

const service = new InnerService({
  config: `models:
  - id: fake-model
    context_length: 200000
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    reasoning: { efforts: [none, low, high], default: none }
    backends:
      - engine: scripted
        scripts:
          - when: { tools: true }
            say: [ { reasoning: "I should look." }, { text: "Hello." }, { tool_call: { name: look, arguments: {} } } ]
          - say: [ { text: "Hello." } ]`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

type Body = Readonly<Record<string, unknown>>;

interface Capture {
  readonly real_body_bytes: number;
  readonly request: {
    readonly url: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: Body;
  };
}

/** Message threads are refused; what clients do then is the capture after these (contracts §0.6). */
const threads: ReadonlySet<string> = new Set([
  'anthropic-sdk-05-toolrunner-thread-create',
  'anthropic-sdk-06-toolrunner-thread-continue',
]);
/** Hop by hop, or of the length that was. */
const notReplayed: ReadonlySet<string> = new Set(['connection', 'content-length', 'host', 'accept-encoding']);

function replay({ request }: Capture, body: Body): Promise<Response> {
  const headers = Object.entries(request.headers)
    .filter(([name]) => !notReplayed.has(name))
    .map(([name, value]) => [name, value.replace('<API_KEY>', service.key)] as [string, string]);
  return fetch(service.url + request.url, {
    method: 'POST',
    headers,
    body: JSON.stringify({ ...body, model: 'fake-model' }),
  });
}

/** As large as the real one was: recordings are cut. */
function padded({ real_body_bytes: bytes, request }: Capture): Body {
  const missing = bytes - Buffer.byteLength(JSON.stringify(request.body));
  const [first, ...rest] = request.body['messages'] as { role: string; content: unknown }[];
  assert.ok(first);
  const filler = { type: 'text', text: 'x '.repeat(Math.max(1, Math.floor(missing / 2))) };
  const content = typeof first.content === 'string' ? [{ type: 'text', text: first.content }] : first.content;
  return { ...request.body, messages: [{ ...first, content: [...(content as unknown[]), filler] }, ...rest] };
}

for (const file of readdirSync(folder).sort()) {
  const name = file.slice(0, -'.json'.length);
  const capture = JSON.parse(readFileSync(join(folder, file), 'utf8')) as Capture;
  const { request } = capture;
  const generation = request.headers['anthropic-version'] as Generation;

  if (threads.has(name)) {
    test(`${name} is refused so that the whole history is sent`, async () => {
      const answer = await replay(capture, request.body);
      assert.equal(answer.status, 400);
      const { error } = (await answer.json()) as { error: { details: unknown } };
      assert.deepEqual(error.details, { error_code: 'thread_unsupported_request', unsupported: ['thread'] });
    });
    continue;
  }

  for (const [size, body] of [
    ['as recorded', request.body],
    ['as large as it was', padded(capture)],
  ] as const) {
    if (request.url.includes('count_tokens')) {
      test(`${name}, ${size}, is counted`, async () => {
        const answer = await replay(capture, body);
        const text = await answer.text();
        assert.equal(answer.status, 200, text);
        assert.ok((JSON.parse(text) as { input_tokens: number }).input_tokens > 0);
      });
      continue;
    }
    for (const stream of [false, true]) {
      test(`${name}, ${size}, ${stream ? 'streamed' : 'whole'}`, async () => {
        const answer = await replay(capture, { ...body, stream });
        const text = await answer.text();
        assert.equal(answer.status, 200, text);
        const message: unknown = stream ? readMessageStream(text, generation).message : JSON.parse(text);
        assertMessageShape(message, generation);
        const said = message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
        assert.equal(said, 'Hello.');
      });
    }
  }
}
