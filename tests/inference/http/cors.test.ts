/** What browsers ask before a page of another origin may call models, and what they let it read (Fetch standard, CORS protocol). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { exposedHeaders } from '../../../src/inference/http/cors.ts';
import { InnerService, noFeatures, scriptedModel, until } from '../../support/service.ts';
import { askChat, chatRequest, plainBody } from './chat.ts';
import { assertEnvelope, assertRequestId } from './envelope.ts';
import { RawConnection, exchange } from './raw.ts';
import type { RawAnswer } from './raw.ts';

const app = 'https://app.example.org';
const model = scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures });
const configured = (origins: string): string =>
  `server:\n  inference: { port: 0, allow_origins: [${origins}] }\n  account: { port: 0 }\n${model}\n`;
const service = new InnerService({ config: model });
before(async () => {
  service.writeConfig(configured(`"${app}"`));
  await service.start();
});
after(() => service.dispose());

const preflight = (
  origin: string,
  path = '/v1/chat/completions',
  more: readonly [string, string][] = [],
  url = service.url,
) =>
  exchange(url, {
    method: 'OPTIONS',
    path,
    headers: [
      ['origin', origin],
      ['access-control-request-method', 'POST'],
      ['access-control-request-headers', 'authorization,content-type,x-stainless-os'],
      ...more,
    ],
  });
const allowed = ({ headers }: RawAnswer): string | undefined => headers['access-control-allow-origin'];

test('a preflight of an allowed page is answered without a key, for every route', async () => {
  for (const path of ['/v1/chat/completions', '/v1/models', '/v1/files/file-1', '/openapi.json', '/nothing']) {
    const answer = await preflight(app, path);
    assert.equal(answer.status, 204, path);
    const { headers } = answer;
    assert.equal(allowed(answer), app);
    assert.match(headers['access-control-allow-methods']!, /\bPOST\b.*\bDELETE\b/);
    assert.equal(headers['access-control-allow-headers'], 'authorization,content-type,x-stainless-os');
    assert.equal(headers['access-control-max-age'], '7200');
    assert.match(headers['vary']!, /\borigin\b/);
    assertRequestId(answer);
    for (const name of ['access-control-allow-credentials', 'set-cookie', 'content-length'])
      assert.equal(headers[name], undefined, name);
  }
});

test('pages of this computer may always, and pages of others that look so may not', async () => {
  for (const origin of [
    'http://localhost',
    'http://localhost:5173',
    'https://127.0.0.1:8443',
    'http://127.1.2.3:1',
    'http://[::1]:3000',
    'http://app.localhost:3000',
    app.toUpperCase().replace('HTTPS', 'https'),
  ])
    assert.equal(allowed(await preflight(origin)), origin);
  for (const origin of [
    'null',
    'https://evil.example',
    `${app}.evil.example`,
    `${app}:8443`,
    app.replace('https', 'http'),
    'http://localhost.evil.example',
    'http://notlocalhost:3000',
    'http://127.0.0.1.evil.example',
    'http://127.0.0.1:80@evil.example',
    'http://localhost:3000/',
    'file://localhost',
  ]) {
    const answer = await preflight(origin);
    assertEnvelope(answer, 'http_403', { accountUrl: service.accountUrl });
    assert.deepEqual([allowed(answer), answer.headers['vary']], [undefined, 'origin'], origin);
  }
});

test('the console asks models from its own address, where there is one', async (t) => {
  const own = 'https://console.example.org:8443';
  const preflightWith = async (settings: string): Promise<RawAnswer> => {
    const other = new InnerService({ config: model });
    t.after(() => other.dispose());
    other.writeConfig(
      `server:\n  inference: { port: 0 }\n  account: { port: 0, public_url: "${own}/"${settings} }\n${model}\n`,
    );
    await other.start();
    return await preflight(own, '/v1/messages', [], other.url);
  };
  const answer = await preflightWith('');
  assert.deepEqual([answer.status, allowed(answer)], [204, own]);
  assert.equal((await preflightWith(', console: false')).status, 403);
});

test('the console asks models from the name that it was opened by, where it has no address of its own', async (t) => {
  const port = new URL(service.accountUrl).port;
  const inferencePort = new URL(service.url).port;
  const at = (origin: string, host: string, url = service.url) =>
    preflight(origin, '/v1/chat/completions', [['host', host]], url);
  for (const name of ['10.1.2.3', 'tokens.lan', 'Tokens.LAN', '[fd00::1]']) {
    const origin = `http://${name.toLowerCase()}:${port}`;
    const answer = await at(origin, `${name}:${inferencePort}`);
    assert.deepEqual([answer.status, allowed(answer)], [204, origin]);
  }
  for (const [origin, host] of [
    [`http://10.1.2.3:${port}`, `10.1.2.4:${inferencePort}`],
    [`http://10.1.2.3:${Number(port) + 1}`, `10.1.2.3:${inferencePort}`],
    [`https://10.1.2.3:${port}`, `10.1.2.3:${inferencePort}`],
    ['http://10.1.2.3', `10.1.2.3:${inferencePort}`],
    [`http://tokens.lan:${port}/`, `tokens.lan:${inferencePort}`],
    [`http://tokens.lan.evil.example:${port}`, `tokens.lan:${inferencePort}`],
    [`http://a;b:${port}`, `a;b:${inferencePort}`],
  ] as const)
    assert.notEqual((await at(origin, host)).status, 204, `${origin} at ${host}`);
  const without = new InnerService({ config: model });
  t.after(() => without.dispose());
  without.writeConfig(`server:\n  inference: { port: 0 }\n  account: { port: 0, console: false }\n${model}\n`);
  await without.start();
  const refused = await at(`http://10.1.2.3:${new URL(without.accountUrl).port}`, '10.1.2.3:80', without.url);
  assert.equal(refused.status, 403);
});

test('answers, streams, errors and refusals of the edge can be read by an allowed page, and name what it may read', async () => {
  const request = chatRequest(service);
  const headers = [...(request.headers ?? []), ['origin', app]] as [string, string][];
  const raw = async (bytes: string): Promise<RawAnswer> => {
    const connection = await RawConnection.open(service.url);
    connection.write(bytes);
    const answer = await connection.answer();
    connection.close();
    return answer;
  };
  const answers: readonly [string, number, RawAnswer][] = [
    ['whole', 200, await exchange(service.url, { ...request, headers })],
    [
      'a stream',
      200,
      await exchange(service.url, { ...chatRequest(service, { ...plainBody, stream: true }), headers }),
    ],
    ['models', 200, await exchange(service.url, { path: '/v1/models', headers: [['origin', app]] })],
    [
      'no key',
      401,
      await exchange(service.url, { ...request, headers: headers.filter(([name]) => !/^auth/i.test(name)) }),
    ],
    ['no route', 404, await exchange(service.url, { path: '/nothing', headers: [['origin', app]] })],
    ['files', 401, await exchange(service.url, { path: '/v1/files', headers: [['origin', app]] })],
    ['the edge', 417, await raw(`GET / HTTP/1.1\r\nHost: a\r\nOrigin: ${app}\r\nExpect: miracles\r\n\r\n`)],
  ];
  for (const [what, status, answer] of answers) {
    assert.equal(answer.status, status, what);
    assert.equal(allowed(answer), app, what);
    assert.equal(answer.headers['access-control-expose-headers'], exposedHeaders.join(', '), what);
    assert.equal(answer.headers['vary'], 'origin', what);
    assert.equal(answer.headers['access-control-allow-credentials'], undefined, what);
    assert.equal(answer.headers['set-cookie'], undefined, what);
    // Safe by itself in any script (Fetch standard, "CORS-safelisted response-header name"), or of the connection.
    const plain = ['content-type', 'content-length', 'cache-control', 'vary', 'date', 'connection', 'keep-alive'];
    const unnamed = ['transfer-encoding', 'x-accel-buffering'];
    for (const name of Object.keys(answer.headers))
      assert.ok(
        [...plain, ...unnamed, ...exposedHeaders].includes(name) || name.startsWith('access-control-'),
        `${what}: a page cannot read ${name}`,
      );
  }
  const document = await exchange(service.url, { path: '/openapi.json', headers: [['origin', app]] });
  const known = await fetch(`${service.url}/openapi.json`, {
    headers: { origin: app, 'if-none-match': document.headers['etag']! },
  });
  assert.deepEqual([known.status, known.headers.get('access-control-allow-origin')], [304, app]);
});

test('a program sees nothing of origins, and OPTIONS that is no preflight is as always', async () => {
  const answer = await askChat(service);
  assert.equal(answer.status, 200);
  assert.deepEqual([allowed(answer), answer.headers['vary']], [undefined, 'origin']);
  const options = await exchange(service.url, { method: 'OPTIONS', path: '/v1/chat/completions' });
  assertEnvelope(options, 'http_405');
});

test('a reload changes who may; * is every page, also one without an origin', async () => {
  service.writeConfig(configured('"*"'));
  await until(async () => allowed(await preflight('null')) === '*', 60_000);
  assert.equal(allowed(await preflight('https://evil.example')), '*');
  service.writeConfig(configured(''));
  await until(async () => (await preflight(app)).status === 403, 60_000);
  assert.equal((await preflight('http://localhost:5173')).status, 204);
});
