import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';

import { inferenceRoutes } from '../../../src/inference/http/routes.ts';
import { inRepository } from '../../support/repository.ts';
import { InnerService } from '../../support/service.ts';
import { until } from '../../support/service.ts';
import { DocumentJudge } from './judge.ts';
import type { Node } from './judge.ts';

/** `GET /openapi.json` of a running service: its examples work, its routes are there, and it follows the configuration. */
const options = { timeout: 300_000 };
const models = (first: string): string => `models:
  - id: ${first}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: { tools: false, chat_completions: { json_schema: false, json_object: false } }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "hello world" } ] } ] } ]
  - id: able
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: { vision: true, reasoning: true }
    backends:
      - engine: scripted
        scripts: [ { say: [ { reasoning: "hm well" }, { text: "hello world" } ] } ]
  - id: embeds
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 0 }
    capabilities: { embeddings: { supported: true } }
    backends: [ { engine: scripted, scripts: [ { say: [] } ] } ]
  - id: ranks
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 0 }
    capabilities: { rerank: { supported: true } }
    backends: [ { engine: scripted, scripts: [ { say: [] } ] } ]`;
const service = new InnerService({ config: models('plain') });
let judge: DocumentJudge;
before(async () => {
  await service.start();
  judge = new DocumentJudge(await (await fetch(`${service.url}/openapi.json`)).json());
}, options);
after(() => service.dispose());

interface Operation {
  readonly path: string;
  readonly method: string;
  readonly operation: Node;
}
const operations = (): readonly Operation[] =>
  Object.entries(judge.document['paths'] as Readonly<Record<string, Readonly<Record<string, Node>>>>).flatMap(
    ([path, item]) => Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
  );

const post = (path: string, body: unknown): Promise<Response> =>
  fetch(`${service.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

describe('serving it', options, () => {
  test('needs no key, and is cheap the second time', async () => {
    const first = await fetch(`${service.url}/openapi.json`);
    assert.equal(first.status, 200);
    assert.equal(first.headers.get('content-type'), 'application/json');
    assert.ok(first.headers.get('x-request-id'));
    const etag = first.headers.get('etag') ?? '';
    assert.match(etag, /^"[\w-]{20,}"$/);
    const text = await first.text();
    const again = await fetch(`${service.url}/openapi.json?x=1`, { headers: { authorization: 'Bearer nonsense' } });
    assert.equal(await again.text(), text);
    const known = await fetch(`${service.url}/openapi.json`, { headers: { 'if-none-match': etag } });
    assert.equal(known.status, 304);
    assert.equal(await known.text(), '');
    assert.equal(known.headers.get('etag'), etag);
    assert.ok(known.headers.get('x-request-id'));
    const stale = await fetch(`${service.url}/openapi.json`, { headers: { 'if-none-match': '"other"' } });
    assert.equal(stale.status, 200);
    assert.equal((await stale.text()).length, text.length);
  });

  test('HEAD has the headers of GET and no body; POST is refused', async () => {
    const get = await fetch(`${service.url}/openapi.json`);
    const head = await fetch(`${service.url}/openapi.json`, { method: 'HEAD' });
    assert.equal(head.status, 200);
    assert.equal(await head.text(), '');
    for (const name of ['etag', 'content-type', 'content-length'])
      assert.equal(head.headers.get(name), get.headers.get(name));
    const refused = await fetch(`${service.url}/openapi.json`, { method: 'POST', body: '{}' });
    assert.equal(refused.status, 405);
    assert.equal(refused.headers.get('allow'), 'GET, HEAD');
  });
});

describe('what it says is so', options, () => {
  test('every operation answers, and no other method does', async () => {
    const methodsOf = new Map<string, string[]>();
    for (const { path, method } of operations()) methodsOf.set(path, [...(methodsOf.get(path) ?? []), method]);
    for (const [path, methods] of methodsOf) {
      const url = `${service.url}${path.replaceAll(/\{\w+\}/g, 'file-0')}`;
      for (const method of ['get', 'head', 'post', 'put', 'patch', 'delete']) {
        const isThere = methods.includes(method) || (method === 'head' && methods.includes('get'));
        const { status, headers } = await fetch(url, {
          method: method.toUpperCase(),
          headers: { authorization: `Bearer ${service.key}` },
        });
        if (!isThere) {
          assert.equal(status, 405, `${method} ${path}`);
          const allowed = (headers.get('allow') ?? '')
            .toLowerCase()
            .split(', ')
            .filter((name) => name !== 'head');
          assert.deepEqual(allowed.toSorted(), methods.toSorted(), path);
        } else assert.notEqual(status, 405, `${method} ${path}`);
        // Of the routes with an id only the file is not there.
        if (!path.includes('{')) assert.notEqual(status, 404, `${method} ${path}`);
      }
    }
  });

  test('every route of the program is in it', () => {
    const source = readFileSync(inRepository('src', 'inference', 'http', 'plain-routes.ts'), 'utf8');
    const plain = [...source.matchAll(/case '(\/[^']+)'/g)].map(([, path = '']) => path);
    assert.ok(plain.length >= 4);
    const documented = new Set(operations().map(({ path }) => path));
    for (const path of [...plain, ...inferenceRoutes.keys()]) assert.ok(documented.has(path), path);
  });

  test('every example works as it stands, and its answer is what is described', async () => {
    const names = new Set<string>();
    for (const { path, operation } of operations()) {
      const content = (operation['requestBody'] as { content?: Node } | undefined)?.content ?? {};
      const media = content['application/json'] as
        | { schema: unknown; examples?: Readonly<Record<string, { value: Readonly<Record<string, unknown>> }>> }
        | undefined;
      for (const [name, { value }] of Object.entries(media?.examples ?? {})) {
        const about = `${path} ${name}`;
        names.add(name);
        assert.deepEqual(judge.faults(media?.schema, value), [], about);
        const answer = await post(path, value);
        const text = await answer.text();
        assert.equal(answer.status, 200, `${about}: ${text}`);
        if (value['stream'] === true) {
          assert.match(answer.headers.get('content-type') ?? '', /^text\/event-stream/);
          assert.deepEqual(judge.faultsOfStream(path, text), [], about);
        } else {
          const schema = judge.answerSchema(path, 'post', 200, 'application/json');
          assert.deepEqual(judge.faults(schema, JSON.parse(text)), [], `${about}: ${text}`);
        }
      }
    }
    for (const name of ['text', 'stream', 'tools', 'json', 'reasoning', 'image', 'base64', 'documents'])
      assert.ok(names.has(name), name);
  });

  test('what needs no body answers as described, with a key and without', async () => {
    for (const { path, method } of operations()) {
      if (method !== 'get' || path.includes('{') || path === '/openapi.json') continue;
      for (const headers of [{}, { authorization: `Bearer ${service.key}` }]) {
        const answer = await fetch(`${service.url}${path}`, { headers });
        const schema = judge.answerSchema(path, method, answer.status, 'application/json');
        assert.deepEqual(judge.faults(schema, await answer.json()), [], path);
      }
    }
  });

  test('files answer as described, in both forms', async () => {
    for (const [version, form] of [
      [{}, { purpose: 'user_data' }],
      [{ 'anthropic-version': '2023-06-01' }, {}],
    ] as const) {
      const headers = { authorization: `Bearer ${service.key}`, ...version };
      const answered = async (path: string, method: string, url: string, body?: FormData): Promise<Node> => {
        const answer = await fetch(`${service.url}${url}`, {
          method: method.toUpperCase(),
          headers,
          body: body ?? null,
        });
        const json = (await answer.json()) as Node;
        const schema = judge.answerSchema(path, method, answer.status, 'application/json');
        assert.deepEqual(judge.faults(schema, json), [], JSON.stringify(json));
        return json;
      };
      const data = new FormData();
      for (const [name, value] of Object.entries(form)) data.set(name, value);
      data.set('file', new Blob(['a,b\n1,2\n'], { type: 'text/csv' }), 'table.csv');
      const { id, error } = await answered('/v1/files', 'post', '/v1/files', data);
      assert.ok(typeof id === 'string', JSON.stringify(error));
      await answered('/v1/files', 'get', '/v1/files?limit=1');
      await answered('/v1/files/{file_id}', 'get', `/v1/files/${id}`);
      const content = await fetch(`${service.url}/v1/files/${id}/content`, { headers });
      assert.equal(await content.text(), 'a,b\n1,2\n');
      assert.ok(content.headers.get('content-disposition'));
      await answered('/v1/files/{file_id}', 'delete', `/v1/files/${id}`);
      const gone = await answered('/v1/files/{file_id}', 'get', `/v1/files/${id}`);
      assert.equal((gone['error'] as Node)['code'], 'http_404');
      const lacking = await answered('/v1/files', 'post', '/v1/files', new FormData());
      assert.ok((lacking['error'] as Node)['code']);
    }
  });

  test('batches answer as described', async () => {
    const answered = async (path: string, method: string, url: string, body?: object): Promise<Node> => {
      const answer = await fetch(`${service.url}${url}`, {
        method: method.toUpperCase(),
        headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const json = (await answer.json()) as Node;
      const schema = judge.answerSchema(path, method, answer.status, 'application/json');
      assert.deepEqual(judge.faults(schema, json), [], JSON.stringify(json));
      return json;
    };
    const data = new FormData();
    data.set('purpose', 'batch');
    data.set('file', new Blob(['{"custom_id": "a"}\n']), 'lines.jsonl');
    const headers = { authorization: `Bearer ${service.key}` };
    const file = (await (
      await fetch(`${service.url}/v1/files`, { method: 'POST', headers, body: data })
    ).json()) as Node;
    const asked = { input_file_id: file['id'], endpoint: '/v1/chat/completions', completion_window: '24h' };
    const made = await answered('/v1/batches', 'post', '/v1/batches', { ...asked, metadata: { of: 'a test' } });
    assert.equal(made['object'], 'batch', JSON.stringify(made));
    await answered('/v1/batches', 'get', '/v1/batches?limit=1');
    await answered('/v1/batches/{batch_id}', 'get', `/v1/batches/${String(made['id'])}`);
    await answered('/v1/batches/{batch_id}/cancel', 'post', `/v1/batches/${String(made['id'])}/cancel`);
    const gone = await answered('/v1/batches/{batch_id}', 'get', `/v1/batches/batch_${'0'.repeat(32)}`);
    assert.equal((gone['error'] as Node)['code'], 'http_404');
    const wrong = await answered('/v1/batches', 'post', '/v1/batches', { ...asked, endpoint: '/v1/nothing' });
    assert.ok((wrong['error'] as Node)['code']);

    const messages = '/v1/messages/batches';
    const request = { custom_id: 'a', params: { model: 'none' } };
    const { id } = await answered(messages, 'post', messages, { requests: [request] });
    await answered(messages, 'get', `${messages}?limit=1`);
    const one = `${messages}/{message_batch_id}`;
    const own = `${messages}/${String(id)}`;
    await answered(`${one}/cancel`, 'post', `${own}/cancel`);
    await until(async () => (await answered(one, 'get', own))['processing_status'] === 'ended');
    const results = await fetch(`${service.url}${own}/results`, { headers });
    assert.deepEqual([results.status, results.headers.get('content-type')], [200, 'application/x-jsonl']);
    assert.equal((await answered(one, 'delete', own))['type'], 'message_batch_deleted');
    assert.equal((await answered(one, 'get', own))['type'], 'error');
    await answered(messages, 'post', messages, { requests: [{ custom_id: 'a' }] });
  });

  test('a refusal is as described', async () => {
    for (const { path, operation } of operations()) {
      const content = (operation['requestBody'] as { content?: Node } | undefined)?.content ?? {};
      if (!('application/json' in content)) continue;
      // What names a model is refused for that first.
      const lacking = path.endsWith('/batches') ? 422 : 400;
      for (const [body, status] of [
        ['{', 400],
        ['{}', lacking],
        ['[]', 422],
        ['{"model":1}', lacking],
      ] as const) {
        const answer = await fetch(`${service.url}${path}`, {
          method: 'POST',
          headers: { 'x-api-key': service.key },
          body,
        });
        assert.equal(answer.status, status, `${path} ${body}`);
        const schema = judge.answerSchema(path, 'post', status, 'application/json');
        assert.deepEqual(judge.faults(schema, await answer.json()), [], path);
      }
      const keyless = await fetch(`${service.url}${path}`, { method: 'POST', body: '{}' });
      assert.equal(keyless.status, 401);
      const schema = judge.answerSchema(path, 'post', 401, 'application/json');
      assert.deepEqual(judge.faults(schema, await keyless.json()), [], path);
    }
  });
});

test('it follows the configuration: another one, another document', options, async () => {
  const exampleModels = async (): Promise<readonly unknown[]> => {
    const document = new DocumentJudge(await (await fetch(`${service.url}/openapi.json`)).json());
    const media = document.at('#/paths/~1v1~1chat~1completions/post/requestBody/content/application~1json');
    return Object.values(media['examples'] as Readonly<Record<string, { value: Node }>>).map(
      ({ value }) => value['model'],
    );
  };
  assert.ok((await exampleModels()).includes('plain'));
  const before = (await fetch(`${service.url}/openapi.json`)).headers.get('etag');
  service.configure({ config: models('other') });
  await until(async () => (await exampleModels()).includes('other'), 120_000);
  assert.ok(!(await exampleModels()).includes('plain'));
  assert.notEqual((await fetch(`${service.url}/openapi.json`)).headers.get('etag'), before);
});
