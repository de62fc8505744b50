import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { TestService, scriptedModel, until } from '../../support/service.ts';
import { OtlpCollector } from '../../support/otlp-collector.ts';
import { pdfOf } from '../../support/pdf-files.ts';
import { writeTinyGguf } from '../../support/tiny-gguf.ts';
import { Upstream, chatChunk, usageChunk } from '../../support/upstream.ts';
import { Canaries, filesBelow, sightings } from './canary.ts';
import { canaryBody, canaryCompletionBody, canaryHeaders, canaryMessagesBody } from './canary-requests.ts';
import { askChat, chatRequest } from './chat.ts';
import { askFiles, bodyOf, part, sendUpload, uploadRequest } from './file-requests.ts';
import { RawConnection, exchange, requestBytes } from './raw.ts';
import type { RawAnswer } from './raw.ts';
import { sha256Of } from '../../support/folder.ts';

/**
 * Nothing that a client or a model says is kept: not in the log, not in the database or its write-ahead log, not in any
 * other file, and not in what a collector of traces and metrics is sent (reliability I10). Canaries go into every place of requests and answers that end in every way; then all
 * that the process has written is searched for them.
 */
const outside = mkdtempSync(join(tmpdir(), 'tokenhouse-canary-'));
const canaries = new Canaries();
const said = {
  text: canaries.at('text of the backend'),
  reasoning: canaries.at('reasoning of the backend'),
  error: canaries.at('error of the backend'),
  header: canaries.at('header of the backend'),
  id: canaries.at('id of the backend'),
};
let upstream: Upstream;
let collector: OtlpCollector;
let service: TestService;

before(async () => {
  upstream = await Upstream.start((request) => {
    const headers = { 'x-request-id': said.header };
    if (request.body.includes('<fail with 500>')) {
      request.json(
        500,
        { error: { message: `${said.error} ${request.body}`, type: said.error, code: said.error } },
        headers,
      );
      return;
    }
    request.events(headers);
    const id = { id: said.id, model: said.id };
    request.chunk(chatChunk({ role: 'assistant', content: '', reasoning_content: said.reasoning }, null, id));
    request.chunk(chatChunk({ content: said.text }, null, id));
    if (request.body.includes('<hang>')) return;
    if (request.body.includes('<cut>')) return request.reset();
    if (request.body.includes('<nonsense>')) return request.chunk(`data: {"broken": "${said.error}\n\n`);
    request.chunk(chatChunk({}, 'stop', id));
    request.chunk(usageChunk({ prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 }));
    request.chunk('data: [DONE]\n\n');
    request.endChunks();
  });
  collector = await OtlpCollector.start();
  const model = join(outside, 'tiny.gguf');
  writeTinyGguf(model);
  mkdirSync(join(outside, 'tmp'));
  service = new TestService({
    environment: { TMPDIR: join(outside, 'tmp'), TOKENHOUSE_MODEL_DIR: join(outside, 'models') },
    config: `telemetry: { endpoint: "${collector.url}", metrics_interval_seconds: 2 }
${scriptedModel('- say: [ { text: "hello" } ]')}
  - id: far
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: openai, url: "${upstream.url}" } ]
  - id: near
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - engine: llama
        sources: [ "file:${model}" ]
        sha256: ${sha256Of(model)}`,
  });
  await service.start();
});
after(async () => {
  await service.dispose();
  await Promise.all([upstream.close(), collector.close()]);
  rmSync(outside, { recursive: true, force: true });
});

const models = ['demo', 'far', 'near'];

const askCompletion = (body: unknown, more: readonly (readonly [string, string])[] = []): Promise<RawAnswer> =>
  exchange(service.url, { ...chatRequest(service, body, more), path: '/v1/completions' });

const fullBody = (model: string, stream: boolean, last: string): Record<string, unknown> =>
  canaryBody(canaries, model, stream, last);
/** The client's own request id, which is not among them, is the one text that is kept. */
const headers = (of: string): readonly (readonly [string, string])[] => canaryHeaders(canaries, of);

describe('requests of every kind of ending', () => {
  for (const model of models) {
    for (const stream of [false, true]) {
      test(`${model}, ${stream ? 'streamed' : 'whole'}, answered`, async () => {
        const answer = await askChat(
          service,
          fullBody(model, stream, `answer ${stream}`),
          headers(`${model} ${stream}`),
        );
        assert.equal(answer.status, 200, answer.body);
        if (model === 'far') assert.ok(answer.body.includes(said.text));
      });
    }
  }

  for (const model of ['demo', 'near']) {
    for (const stream of [false, true]) {
      test(`${model}, a text completion, ${stream ? 'streamed' : 'whole'}, answered`, async () => {
        const body = canaryCompletionBody(canaries, model, stream, `answer ${stream}`);
        const answer = await askCompletion(body, headers(`completion of ${model} ${stream}`));
        assert.equal(answer.status, 200, answer.body);
        // What it echoes is the client's own.
        assert.ok(answer.body.includes((body['prompt'] as string[])[0]!));
      });
    }
  }

  for (const model of models) {
    for (const stream of [false, true]) {
      test(`messages to ${model}, ${stream ? 'streamed' : 'whole'}, answered and counted`, async () => {
        const body = canaryMessagesBody(canaries, model, stream, `answer ${stream}`);
        for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
          const answer = await exchange(service.url, {
            ...chatRequest(service, body, headers(`${path}, ${model} ${stream}`)),
            path,
          });
          assert.equal(answer.status, 200, answer.body);
          if (model === 'far' && path === '/v1/messages') assert.ok(answer.body.includes(said.text));
        }
      });
    }
  }

  test('text completions that fail and are refused', async () => {
    const at = (place: string): string => canaries.at(`${place} of a completion, refused`);
    const { structured_outputs: _, ...plain } = canaryCompletionBody(canaries, 'far', true, 'fail with 500');
    const failed = await askCompletion(plain);
    assert.equal(failed.status, 502, failed.body);
    assert.ok(!failed.body.includes(said.error));
    for (const [status, body] of [
      [404, { model: at('model'), prompt: at('prompt') }],
      [422, { model: 'demo', prompt: [at('text'), 1] }],
      [422, { model: 'demo', prompt: at('prompt'), logprobs: at('logprobs') }],
      [400, { model: 'demo', prompt: at('prompt'), suffix: at('suffix') }],
      [400, { model: 'demo', prompt: at('prompt'), ebnf: `root ::= ${at('ebnf').replaceAll('_', '-')}` }],
      [400, { model: 'demo', prompt: at('prompt'), json_schema: at('schema') }],
      [400, { model: 'demo', prompt: at('prompt'), regex: 'a', structured_outputs: { choice: [at('choice')] } }],
      [400, { model: 'near', prompt: `${at('long text')} `.repeat(3000) }],
    ] as const) {
      const answer = await askCompletion(body);
      assert.equal(answer.status, status, answer.body);
    }
  });

  test('messages that fail, break off, or are refused', async () => {
    const send = (body: unknown): Promise<RawAnswer> =>
      exchange(service.url, { ...chatRequest(service, body, headers('messages, refused')), path: '/v1/messages' });
    const full = (last: string): Record<string, unknown> => canaryMessagesBody(canaries, 'far', true, last);
    assert.equal((await send(full('fail with 500'))).status, 502);
    for (const last of ['cut', 'nonsense'])
      assert.match((await send(full(last))).body, /event: error\ndata: .*"code":"backend_/);
    const at = (place: string): string => canaries.at(`${place}, messages refused`);
    for (const [status, fields] of [
      [400, { thread: { type: at('thread') } }],
      [400, { messages: [{ role: 'user', content: [{ type: at('block type') }] }] }],
      [400, { output_config: { effort: at('effort') } }],
      [400, { output_config: { format: { type: at('format') } } }],
      [400, { tools: [], tool_choice: { type: 'tool', name: at('chosen tool') } }],
      [422, { max_tokens: at('max tokens') }],
      [404, { model: at('model') }],
    ] as const)
      assert.equal((await send({ ...full('refused'), ...fields })).status, status);
  });

  test('failed before the first token, in the middle, and by a broken stream', async () => {
    const failed = await askChat(service, fullBody('far', true, 'fail with 500'));
    assert.equal(failed.status, 502, failed.body);
    assert.ok(!failed.body.includes(said.error));
    for (const last of ['cut', 'nonsense']) {
      const cut = await askChat(service, fullBody('far', true, last));
      assert.match(cut.body, /"code":"backend_/);
      assert.match(String((await askChat(service, fullBody('far', false, last))).status), /^50[24]$/);
    }
  });

  test('left by the client in mid-stream and while waiting', async () => {
    for (const stream of [true, false]) {
      const asked = upstream.exchanges.length;
      const connection = await RawConnection.open(service.url);
      connection.write(requestBytes(service.url, chatRequest(service, fullBody('far', stream, 'hang'))));
      await until(() => upstream.exchanges.length > asked);
      if (stream) await connection.waitFor(() => connection.received.includes(said.text));
      connection.close();
      await upstream.exchanges.at(-1)?.closed;
    }
    await until(
      async () => (await service.usage()).requests.filter((line) => line.ending === 'client_left').length === 2,
    );
  });

  test('refused for each kind of reason, and taken with tools', async () => {
    const at = (place: string): string => canaries.at(`${place}, refused`);
    const user = [{ role: 'user', content: at('user text') }];
    const tool = (name: string) => ({
      type: 'function',
      function: {
        name,
        description: at('tool description'),
        parameters: { type: 'object', properties: { [at('schema key')]: { enum: [at('schema value')] } } },
      },
    });
    const same = at('repeated tool name');
    const bodies: readonly (readonly [number, unknown])[] = [
      [404, { model: at('model'), messages: user }],
      [400, `{"model":"demo","messages":[{"role":"user","content":"${at('cut JSON')}`],
      [400, `${at('no JSON')}`],
      [400, Buffer.concat([Buffer.from(at('no UTF-8')), Buffer.from([0xff])])],
      [400, { [at('key without a model')]: at('value') }],
      [422, [at('array')]],
      [422, { model: 'demo', messages: [{ role: at('role'), content: at('text') }] }],
      [422, { model: 'demo', messages: user, temperature: at('temperature') }],
      [422, { model: 'demo', messages: user, stop: { [at('stop key')]: 1 } }],
      [422, { model: 'demo', messages: user, tool_choice: at('tool choice') }],
      [400, { model: 'demo', messages: user, reasoning_effort: at('effort') }],
      [400, { model: 'demo', messages: user, regex: `(${at('regex')}` }],
      [400, { model: 'demo', messages: user, response_format: { type: at('format') } }],
      [
        400,
        { model: 'demo', messages: user, response_format: { type: 'grammar', grammar: `root ::= ${at('grammar')}` } },
      ],
      [
        400,
        {
          model: 'demo',
          messages: user,
          response_format: {
            type: 'json_schema',
            json_schema: { name: at('schema name'), schema: { $ref: at('reference') } },
          },
        },
      ],
      [200, { model: 'demo', messages: user, tools: [tool(at('tool name'))] }],
      [400, { model: 'demo', messages: user, tools: [{ type: at('tool type') }] }],
      [400, { model: 'demo', messages: user, tools: [tool(same), tool(same)] }],
      [
        400,
        {
          model: 'demo',
          messages: user,
          tools: [tool('a')],
          tool_choice: { type: 'function', function: { name: at('chosen tool') } },
        },
      ],
      [
        400,
        {
          model: 'demo',
          messages: [...user, { role: 'tool', tool_call_id: at('orphan id'), content: at('orphan result') }],
        },
      ],
      [
        400,
        {
          model: 'demo',
          messages: [
            { role: 'user', content: [{ type: 'file', file: { file_data: at('file'), filename: at('file name') } }] },
          ],
        },
      ],
      [400, { model: 'near', messages: [{ role: 'user', content: `${at('long text')} `.repeat(3000) }] }],
    ];
    for (const [status, body] of bodies) {
      const answer = await askChat(service, body, headers(`refused with ${status}`));
      assert.equal(answer.status, status, answer.body);
    }
  });

  test('refused for their heads', async () => {
    const at = (place: string): string => canaries.at(`${place}, of a refused head`);
    const send = (path: string, more: readonly (readonly [string, string])[]): Promise<RawAnswer> =>
      exchange(service.url, { method: 'POST', path, headers: more, body: at('body') });
    const key = ['Authorization', `Bearer ${service.key}`] as const;
    const chat = '/v1/chat/completions';
    assert.equal((await send(`/${at('path')}?${at('query')}`, [key])).status, 404);
    assert.equal((await send('/v1/models', [key])).status, 405);
    assert.equal((await send(chat, [])).status, 401);
    assert.equal((await send(chat, [['Authorization', `Bearer tkh_${at('key')}`]])).status, 401);
    assert.equal((await send(chat, [['X-Api-Key', at('other key')]])).status, 401);
    assert.equal((await send(chat, [['Authorization', `Basic ${at('password')}`]])).status, 401);
    assert.equal((await send(chat, [key, ['Service-ZDR', at('ZDR')]])).status, 400);
    assert.equal((await send(chat, [key, ['Content-Type', `multipart/${at('content type')}`]])).status, 415);
    assert.equal((await send(chat, [key, ['Content-Encoding', at('content encoding')]])).status, 415);
    assert.equal((await send(chat, [key, ['Expect', at('expectation')]])).status, 417);
    const connection = await RawConnection.open(service.url);
    connection.write(`GET ${at('target')} HTTP/1.1\r\n${at('header without a colon')}\r\n\r\n`);
    assert.equal((await connection.answer()).status, 400);
    connection.close();
  });

  test('too large, and broken off in the body', async () => {
    const at = (place: string): string => canaries.at(`${place}, of a body`);
    const large = await RawConnection.open(service.url);
    large.write(requestBytes(service.url, chatRequest(service, at('too large'), [['Content-Length', '60000000']])));
    assert.equal((await large.answer()).status, 413);
    large.close();
    const broken = await RawConnection.open(service.url);
    broken.write(requestBytes(service.url, chatRequest(service, at('broken off'), [['Content-Length', '1000']])));
    broken.socket.resetAndDestroy();
    const refusals = () => service.log.filter((line) => line['error'] === 'http_408').length;
    await until(() => refusals() > 0);
  });

  test('in files: uploaded and deleted, refused, left in the middle, in requests, and a PDF that is read', async () => {
    const at = (place: string): string => canaries.at(`${place}, of a file`);
    const line = ([name, value]: readonly [string, string]): string => `${name}: ${value}\r\n`;
    const more = line(['Content-Type', at('type')]) + line(['X-Further', at('header of a part')]);
    const body = bodyOf(
      part('file', at('content'), `${at('name')}.txt`, more),
      part('purpose', 'user_data'),
      part(at('field'), at('value')),
    );
    const stored = await sendUpload(service, body);
    assert.equal(stored.status, 200, stored.body);
    const id = String(stored.json()['id']);
    const content = (file: object) => [{ role: 'user', content: [{ type: 'file', file }] }];
    assert.equal((await askChat(service, { model: 'demo', messages: content({ file_id: id }) })).status, 200);
    const pdf = `data:application/pdf;base64,${pdfOf([at('text')]).toString('base64')}`;
    const inline = { file_data: pdf, filename: at('name in line') };
    assert.equal((await askChat(service, { model: 'demo', messages: content(inline) })).status, 200);
    const damaged = {
      file_data: `data:application/pdf;base64,${Buffer.from(`%PDF-1.7 ${at('damaged')}`).toString('base64')}`,
    };
    assert.equal((await askChat(service, { model: 'demo', messages: content(damaged) })).status, 400);
    assert.equal((await askChat(service, { model: 'demo', messages: content({ file_id: at('id') }) })).status, 400);
    assert.equal((await askFiles(service, `/${at('path')}?after=${at('query')}`)).status, 404);
    const refused = bodyOf(part('file', at('refused'), at('refused name')), part('purpose', at('refused purpose')));
    assert.equal((await sendUpload(service, refused)).status, 422);
    const left = await RawConnection.open(service.url);
    left.write(requestBytes(service.url, uploadRequest(service, Buffer.alloc(0), [['Content-Length', '100000']])));
    left.write(part('file', at('left'), at('left name')));
    left.socket.resetAndDestroy();
    assert.equal((await askFiles(service, `/${id}`, [], 'DELETE')).status, 200);
  });

  test('killed in mid-stream, and repaired at the next start', async () => {
    const connection = await RawConnection.open(service.url);
    connection.write(requestBytes(service.url, chatRequest(service, fullBody('far', true, 'hang'))));
    await connection.waitFor(() => connection.received.includes(said.text));
    await service.stop('SIGKILL');
    await service.start();
    await service.verify();
  });
});

describe('afterwards', () => {
  const kept = canaries.at('x-request-id');
  const written = (): ReadonlyMap<string, Uint8Array> => {
    const files = [...filesBelow(service.folder), ...filesBelow(join(outside, 'tmp'))];
    const ofService = files.filter(([path]) => basename(path) !== 'tokenhouse.yaml');
    const sent = Buffer.concat(collector.posts.map(({ body }) => body));
    return new Map([['output', Buffer.from(service.output)], ['collector', sent], ...ofService]);
  };

  test('the detector finds what is really written: the request id that the client chose', async () => {
    await askChat(service, { model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, [['X-Request-Id', kept]]);
    await until(() => service.output.includes(kept));
    const where = sightings(canaries.all, written())
      .filter(({ place }) => place === 'x-request-id')
      .map((sighting) => basename(sighting.where).replace('tokenhouse.db', 'database'));
    assert.ok(where.includes('output'), `not in the log, but in ${where.join()}`);
    assert.ok(
      where.some((file) => file.startsWith('database')),
      `not in the database, but in ${where.join()}`,
    );
  });

  test('the detector finds every form of a text', () => {
    const text = '0a1b2c3d4e5f60718293a4b5c6d7e8f9';
    for (const [form, bytes] of [
      ['text', `before${text}after`],
      ['a fragment', `before${text.slice(9, 21)}after`],
      ['upper case', text.toUpperCase()],
      ['hex', Buffer.from(`xyz${text}`).toString('hex')],
      ['escapes of JSON', [...text].map((c) => `\\u00${c.charCodeAt(0).toString(16)}`).join('')],
      ['escapes of URLs', [...text].map((c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`).join('')],
      ['UTF-16', Buffer.from(`xyz${text}`, 'utf16le')],
      ['base64', Buffer.from(`{"a":"${text}"}`).toString('base64')],
      ['base64, one further', Buffer.from(`{"ab":"${text}"}`).toString('base64')],
      ['base64, two further', Buffer.from(`{"abc":"${text}"}`).toString('base64')],
    ] as const) {
      const hay = new Map([['hay', Buffer.from(bytes)]]);
      assert.equal(sightings([{ place: form, text }], hay).length, 1, form);
      assert.equal(sightings([{ place: form, text: text.split('').reverse().join('').slice(1) }], hay).length, 0, form);
    }
  });

  test('nothing else of any request or answer is anywhere', async () => {
    await service.stop();
    const hay = written();
    assert.ok(canaries.all.length > 150, String(canaries.all.length));
    assert.ok([...hay.keys()].some((path) => path.endsWith('.db')));
    assert.ok(service.log.length > 40);
    // Of every kind of request: its traces are there, and say nothing of it.
    const routes = new Set(collector.spans.map(({ attributes }) => attributes['http.route']));
    for (const route of ['/v1/chat/completions', '/v1/completions', '/v1/messages', '/v1/messages/count_tokens'])
      assert.ok(routes.has(route), route);
    const endings = new Set(collector.spans.map(({ attributes }) => attributes['tokenhouse.ending']));
    for (const ending of ['finished', 'failed', 'client_left']) assert.ok(endings.has(ending), ending);
    assert.ok(collector.points.length > 100);
    assert.deepEqual(
      sightings(canaries.all, hay).filter(({ place }) => place !== 'x-request-id'),
      [],
    );
  });
});
