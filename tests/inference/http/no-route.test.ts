/** Somebody has the address wrong: the 404 says the right one, on both hosts, and a browser gets a page. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { accountRoutes } from '../../../src/account-api/routes.ts';
import { accountSegments } from '../../../src/inference/http/no-route.ts';
import { inferenceRoutes } from '../../../src/inference/http/routes.ts';
import { InnerService, noFeatures, scriptedModel } from '../../support/service.ts';
import { assertEnvelope } from './envelope.ts';
import { exchange } from './raw.ts';

const service = new InnerService({ config: scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures }) });
before(() => service.start());
after(() => service.dispose());

async function reported(url: string, path: string, method = 'POST'): Promise<string> {
  const { message } = assertEnvelope(await exchange(url, { method, path }), 'http_404') as { message: string };
  return message;
}

test('what lacks /v1, or has it twice, gets the route that is meant', async () => {
  for (const [path, meant] of [
    ['/chat/completions', '/v1/chat/completions'],
    ['/completions', '/v1/completions'],
    ['/v1/v1/messages', '/v1/messages'],
    ['/messages/count_tokens', '/v1/messages/count_tokens'],
    ['/responses', '/v1/responses'],
    ['/models', '/v1/models'],
    ['/v1/models/', '/v1/models'],
    ['/v1//chat/completions', '/v1/chat/completions'],
    ['/api/v1/chat/completions?x=1', '/v1/chat/completions'],
  ] as const) {
    assert.match(await reported(service.url, path), new RegExp(`Use ${meant}\\. The base URL`), path);
    assert.ok((await reported(service.accountUrl, path)).includes(`${service.url}${meant}.`), path);
  }
});

test('a request for a route of the other host gets where that is', async () => {
  for (const path of inferenceRoutes.keys())
    assert.ok((await reported(service.accountUrl, path)).includes(`use ${service.url}${path}.`), path);
  assert.ok((await reported(service.url, '/v1/keys')).includes(`use ${service.accountUrl}/v1/keys.`));
  assert.ok((await reported(service.url, '/v1/credits/topups')).includes(`use ${service.accountUrl}/v1/credits.`));
  assert.ok((await reported(service.url, '/topup', 'GET')).includes(`${service.accountUrl}/topup.`));
  for (const { path } of accountRoutes)
    if (!path.startsWith('/v1/'))
      assert.ok((await reported(service.url, path, 'GET')).includes(`${service.accountUrl}${path}.`), path);
  assert.match(await reported(service.accountUrl, '/heads/2026-11-28', 'GET'), /Use \/v1\/heads\./);
  assert.match(await reported(service.accountUrl, '/keys'), /Use \/v1\/keys\./);
});

test('the inference host knows every route of the account host', () => {
  const segments = new Set(accountRoutes.flatMap(({ path }) => /^\/v1\/([^/]+)/.exec(path)?.[1] ?? []));
  // `/v1/models/prices` lies below a route of its own.
  segments.delete('models');
  assert.deepEqual([...accountSegments].toSorted(), [...segments].toSorted());
});

test('a request for a route that nobody has gets what there is, and the request is not repeated', async () => {
  for (const path of [
    '/v1/audio/speech',
    '/v1/threads/t/messages',
    '/api/chat',
    '/v1/nothing?key=secret',
    '/<script>',
  ]) {
    const message = await reported(service.url, path);
    assert.match(
      message,
      /\/v1\/chat\/completions, .*\/v1\/files, \/v1\/batches, \/v1\/messages\/batches; GET \/openapi\.json/,
    );
    assert.doesNotMatch(message, /secret|script|audio|threads/);
  }
});

test('/ is a page for a browser, and a 404 that says where to go for a program', async () => {
  const page = await exchange(service.url, { path: '/', headers: [['accept', 'text/html,application/xhtml+xml,*/*']] });
  assert.equal(page.status, 200);
  assert.equal(page.headers['content-type'], 'text/html; charset=utf-8');
  assert.match(page.headers['content-security-policy']!, /default-src 'none'/);
  for (const fact of ['<code>/v1</code>', 'href="/openapi.json"', `href="${service.accountUrl}"`])
    assert.ok(page.body.includes(fact), fact);
  assert.match(await reported(service.url, '/', 'GET'), /\/v1\/chat\/completions/);
});
