import assert from 'node:assert/strict';
import { test } from 'node:test';

import Type from 'typebox';

import { perMinute } from '../../src/account-api/api.ts';
import { RateLimit } from '../../src/account-api/rate-limits.ts';
import { ApiError } from '../../src/platform/errors.ts';
import { networksOf, widestNetworkOf } from '../../src/platform/ip/network.ts';
import { mayManage, Reply, roles, route } from '../../src/account-api/route.ts';
import type { AccountRoute } from '../../src/account-api/route.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { openHost } from './host.ts';

/** What every route of the account API has from the host: docs/decisions/013-account-host.md. */
const common = { tag: 'Tests', summary: 'A test.', description: 'A test.' } as const;
const reported = Type.Object({ reported: Type.Unknown() });

const routes: readonly AccountRoute[] = [
  route({
    ...common,
    method: 'get',
    path: '/v1/things/{id}',
    operationId: 'getThing',
    access: [...roles],
    params: Type.Object({ id: Type.String({ maxLength: 10 }) }),
    query: Type.Object(
      {
        n: Type.Optional(Type.Integer({ minimum: 1 })),
        by: Type.Optional(Type.Array(Type.String())),
        on: Type.Optional(Type.Boolean()),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'It.', schema: reported }],
    handle: async ({ params, query, account }) => ({ reported: [account, params, query] }),
  }),
  route({
    ...common,
    method: 'get',
    path: '/v1/things/all',
    operationId: 'getThings',
    access: 'anyone',
    answers: [{ status: 200, description: 'All.', schema: reported }],
    handle: async () => ({ reported: 'all' }),
  }),
  route({
    ...common,
    method: 'post',
    path: '/v1/things',
    operationId: 'makeThing',
    access: [...mayManage],
    body: Type.Object(
      {
        name: Type.String({ maxLength: 5 }),
        inner: Type.Optional(Type.Object({ deep: Type.Boolean() }, { additionalProperties: false })),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 201, description: 'Made.', schema: reported }],
    handle: async (call) => {
      await call.audit({ action: 'thing.make', target: 'one', after: call.body });
      return { reported: [call.body, call.idempotencyKey ?? null] };
    },
  }),
  route({
    ...common,
    method: 'delete',
    path: '/v1/things/{id}',
    operationId: 'dropThing',
    access: [...mayManage],
    params: Type.Object({ id: Type.String() }),
    answers: [{ status: 204, description: 'Gone.' }],
    handle: async () => undefined,
  }),
  route({
    ...common,
    method: 'get',
    path: '/v1/operators',
    operationId: 'operate',
    access: 'operator',
    answers: [{ status: 200, description: 'Operated.', schema: reported }],
    handle: async () => ({ reported: true }),
  }),
  route({
    ...common,
    method: 'get',
    path: '/v1/people',
    operationId: 'people',
    access: 'user',
    answers: [{ status: 200, description: 'A person.', schema: reported }],
    handle: async () => ({ reported: true }),
  }),
  route({
    ...common,
    method: 'get',
    path: '/v1/pieces',
    operationId: 'pieces',
    access: 'anyone',
    query: Type.Object({ break: Type.Optional(Type.Boolean()) }),
    answers: [{ status: 200, description: 'Pieces.', contentType: 'text/csv' }],
    handle: async ({ query }) =>
      new Reply(
        200,
        { 'content-type': 'text/csv' },
        (async function* () {
          for (let index = 0; index < 3; index++) yield `piece ${index}\n`;
          if (query.break === true) throw new Error('broken');
        })(),
      ),
  }),
  route({
    ...common,
    method: 'post',
    path: '/v1/told',
    operationId: 'told',
    access: 'anyone',
    perMinute: perMinute.address + 5,
    body: 'raw',
    answers: [{ status: 200, description: 'Heard.', schema: reported }],
    handle: async () => ({ reported: true }),
  }),
  route({
    ...common,
    method: 'get',
    path: '/v1/broken',
    operationId: 'broken',
    access: 'anyone',
    answers: [{ status: 200, description: 'Never.', schema: reported }],
    handle: async () => Promise.reject(new Error('secret text')),
  }),
];

test('a route is for the roles that it names, and no other key', async (t) => {
  const host = await openHost(t, routes);
  await host.account('a');
  for (const role of roles) {
    const key = await host.key('a', role);
    assert.equal((await host.ask('GET', '/v1/things/x', { key })).status, 200, role);
    const made = await host.ask('POST', '/v1/things', { key, json: { name: 'n' } });
    if (role === 'owner' || role === 'admin') assert.equal(made.status, 201, role);
    else assertEnvelope(made, 'http_403', { accountUrl: host.url });
    assertEnvelope(await host.ask('GET', '/v1/operators', { key }), 'http_403');
    // A key is no person.
    assertEnvelope(await host.ask('GET', '/v1/people', { key }), 'http_403');
  }
  const operator = await host.key('a', 'viewer', true);
  assert.equal((await host.ask('GET', '/v1/operators', { key: operator })).status, 200);
  // The operator of the server is in an account what their role says.
  assertEnvelope(await host.ask('POST', '/v1/things', { key: operator, json: { name: 'n' } }), 'http_403');
  const inference = await host.key('a', null);
  assertEnvelope(await host.ask('GET', '/v1/things/x', { key: inference }), 'http_403');
  assertEnvelope(await host.ask('GET', '/v1/things/x'), 'missing_api_key');
  for (const key of ['nonsense', `${operator.slice(0, -1)}!`, operator.toUpperCase()])
    assertEnvelope(await host.ask('GET', '/v1/things/x', { key }), 'invalid_api_key');
});

test('another account that a key names is as one that is not there', async (t) => {
  const host = await openHost(t, routes);
  await host.account('a');
  await host.account('b');
  const key = await host.key('a', 'owner');
  const ask = (id: string) => host.ask('GET', '/v1/things/x', { key, headers: [['x-account-id', id]] });
  assert.equal((await ask('a')).status, 200);
  const [others, nobodys] = [await ask('b'), await ask('no such')];
  const { request_id: _, ...error } = assertEnvelope(others, 'http_404');
  const { request_id: __, ...same } = assertEnvelope(nobodys, 'http_404');
  assert.deepEqual(error, same);
});

test('paths: fixed before parameters, decoded once, HEAD as GET, 405 with the methods', async (t) => {
  const host = await openHost(t, routes);
  await host.account('a');
  const key = await host.key('a', 'owner');
  assert.deepEqual((await host.ask('GET', '/v1/things/all')).json(), { reported: 'all' });
  const got = await host.ask('GET', '/v1/things/a%2Fb%2520', { key });
  assert.deepEqual(got.json()['reported'], [{ id: 'a', role: 'owner', isSuspended: false }, { id: 'a/b%20' }, {}]);
  assertEnvelope(await host.ask('GET', '/v1/things/longer-than-ten', { key }), 'http_404');
  for (const path of ['/v1/things/', '/v1/things/x/y', '/v1/nothing', '/v1/things/%ff', '/v1/'])
    assert.equal((await host.ask('GET', path, { key })).status, 404, path);
  const refused = await host.ask('PUT', '/v1/things/x', { key });
  assertEnvelope(refused, 'http_405');
  assert.equal(refused.headers['allow'], 'GET, HEAD, DELETE');
  assert.equal((await host.ask('DELETE', '/v1/things/x', { key })).status, 204);
});

test('queries have types, and nothing that is not described', async (t) => {
  const host = await openHost(t, routes);
  await host.account('a');
  const key = await host.key('a', 'owner');
  const ask = (query: string) => host.ask('GET', `/v1/things/x?${query}`, { key });
  const got = await ask('n=7&by=one&by[]=two%20three&on=true');
  assert.deepEqual((got.json()['reported'] as unknown[])[2], { n: 7, by: ['one', 'two three'], on: true });
  assertEnvelope(await ask('n=x'), 'schema_validation_failed', { param: 'n' });
  assertEnvelope(await ask('n=0'), 'schema_validation_failed', { param: 'n' });
  assertEnvelope(await ask('n=1&n=2'), 'schema_validation_failed', { param: 'n' });
  assertEnvelope(await ask('n=1e999'), 'schema_validation_failed', { param: 'n' });
  assertEnvelope(await ask('m=1'), 'unsupported_parameter', { param: 'm' });
  assertEnvelope(await ask('__proto__=1'), 'unsupported_parameter', { param: '__proto__' });
  assertEnvelope(await ask('constructor=1'), 'unsupported_parameter', { param: 'constructor' });
});

test('bodies are application/json, within their size, and have no unknown fields', async (t) => {
  const host = await openHost(t, routes);
  await host.account('a');
  const key = await host.key('a', 'owner');
  const make = (json: unknown) => host.ask('POST', '/v1/things', { key, json });
  assert.deepEqual((await make({ name: 'n', inner: { deep: true } })).json()['reported'], [
    { name: 'n', inner: { deep: true } },
    null,
  ]);
  assertEnvelope(await make({}), 'invalid_json_request', { param: 'name' });
  assertEnvelope(await make({ name: 1 }), 'schema_validation_failed', { param: 'name' });
  assertEnvelope(await make({ name: 'longer' }), 'schema_validation_failed', { param: 'name' });
  assertEnvelope(await make({ name: 'n', other: 1 }), 'unsupported_parameter', { param: 'other' });
  assertEnvelope(await make({ name: 'n', inner: { deep: true, more: 1 } }), 'unsupported_parameter', {
    param: 'inner.more',
  });
  assertEnvelope(await make([]), 'schema_validation_failed');
  // Reliability §3.6: what a parser and a check could read differently is not read at all.
  const taken = [
    'application/json',
    'application/json\t',
    'Application/JSON',
    'application/json; charset=utf-8', // .NET, OkHttp
    'application/json;charset=UTF-8',
    'application/json ;\tCharset="utf-8" ',
  ];
  const refused = [
    'application/json;',
    'application/json; charset=utf-16',
    'application/json; charset=utf-8; charset=utf-8',
    'application/json; charset="utf-8',
    'application/json; boundary=x',
    'application/json; charset=utf-8, text/plain',
    ' application/json ,text/plain',
    'application/json, application/json',
    'text/json',
    'application/vnd.api+json',
    'application/jsonp',
    '',
    // What a page of another site may send without asking, alone and dressed up as JSON.
    ...['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data'].flatMap((form) =>
      [
        '',
        ';charset=utf-8',
        '; application/json',
        ';x=application/json',
        ', application/json',
        '; boundary=application/json',
        ';json',
        '/json',
        ' application/json',
      ].map((end) => form + end),
    ),
  ];
  assert.ok(taken.length + refused.length >= 40);
  for (const type of [...taken, ...refused]) {
    const answer = await host.ask('POST', '/v1/things', {
      key,
      headers: [['content-type', type]],
      body: '{"name":"n"}',
    });
    assert.equal(answer.status, taken.includes(type) ? 201 : 415, JSON.stringify(type));
  }
  assertEnvelope(await host.ask('POST', '/v1/things', { key, body: '{"name":"n"}' }), 'http_415');
  const json = [['content-type', 'application/json']] as const;
  const send = (body: string | Uint8Array) => host.ask('POST', '/v1/things', { key, headers: json, body });
  for (const body of ['', '{', 'null x', '{"name":"n"}{}', '﻿{"name":"n"}', `${'['.repeat(5000)}`])
    assertEnvelope(await send(body), 'invalid_json_request');
  assertEnvelope(await send(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d])), 'invalid_json_request');
  assertEnvelope(await send('{"name":"n","__proto__":{"deep":1}}'), 'unsupported_parameter', { param: '__proto__' });
  assertEnvelope(await send(' '.repeat(262_144)), 'request_body_too_large');
});

test('pages of other sites change nothing', async (t) => {
  const host = await openHost(t, routes);
  await host.account('a');
  const key = await host.key('a', 'owner');
  const make = (headers: readonly (readonly [string, string])[]) =>
    host.ask('POST', '/v1/things', { key, json: { name: 'n' }, headers });
  for (const headers of [
    [['origin', 'https://evil.example']],
    [['origin', 'null']],
    [['origin', 'file://']],
    [['origin', `${host.url}.evil.example`]],
    [['origin', host.url.replace('http:', 'https:')]],
    [['sec-fetch-site', 'cross-site']],
    [['sec-fetch-site', 'same-site']],
    [
      ['sec-fetch-site', 'cross-site'],
      ['origin', host.url],
    ],
  ] as const)
    assertEnvelope(await make(headers), 'http_403');
  const { port } = new URL(host.url);
  for (const headers of [
    [],
    [['origin', host.url]],
    [['sec-fetch-site', 'same-origin']],
    [['sec-fetch-site', 'none']],
    // What a browser sends from a page that tells nobody where it is from: it knows by itself that this is no other site.
    [
      ['sec-fetch-site', 'same-origin'],
      ['origin', 'null'],
    ],
    // Another name of this host, and another behind a proxy that ends TLS and passes on what was typed.
    [
      ['host', `localhost:${port}`],
      ['origin', `http://localhost:${port}`],
    ],
    [
      ['host', 'tokens.example.org'],
      ['origin', 'https://tokens.example.org'],
    ],
  ] as const)
    assert.equal((await make(headers)).status, 201, JSON.stringify(headers));
});

test('every sender has a number of requests a minute, and sees how many are left', async (t) => {
  let now = 1_000_000;
  const host = await openHost(t, routes, () => now);
  await host.account('a');
  const key = await host.key('a', 'owner');
  const other = await host.key('a', 'viewer');
  for (let left = perMinute.sender - 1; left >= 0; left--) {
    const { status, headers } = await host.ask('GET', '/v1/things/x', { key });
    assert.equal(status, 200);
    assert.equal(headers['ratelimit-limit'], String(perMinute.sender));
    assert.equal(headers['ratelimit-remaining'], String(left));
  }
  const refused = await host.ask('GET', '/v1/things/x', { key });
  assertEnvelope(refused, 'rate_limit_exceeded');
  assert.equal(refused.headers['retry-after'], '60');
  assert.equal(refused.headers['ratelimit-reset'], '60');
  assert.equal((await host.ask('GET', '/v1/things/x', { key: other })).status, 200);
  now += 60_000;
  assert.equal((await host.ask('GET', '/v1/things/x', { key })).status, 200);
  // Credentials that are none are counted by the address, and then nobody looks at more of them.
  for (let count = 0; count < perMinute.failures; count++)
    assert.equal((await host.ask('GET', '/v1/things/x', { key: 'junk' })).status, 401);
  assertEnvelope(await host.ask('GET', '/v1/things/x', { key: 'junk' }), 'rate_limit_exceeded');
});

test('a route that other services call has its own count', async (t) => {
  const host = await openHost(t, routes);
  for (let count = 0; count < perMinute.address + 5; count++)
    assert.equal((await host.ask('POST', '/v1/told', { body: 'x' })).status, 200);
  assertEnvelope(await host.ask('POST', '/v1/told', { body: 'x' }), 'rate_limit_exceeded');
  assert.equal((await host.ask('GET', '/v1/things/all')).status, 200);
});

test('one who has many addresses is one sender', () => {
  for (const [address, network] of [
    ['203.0.113.7', ['203.0.113.7']],
    ['::ffff:203.0.113.7', ['203.0.113.7']],
    ['2001:db8:1:2f3:3:4:5:6', ['2001:db8:1:2f3::/64', '2001:db8:1:200::/56', '2001:db8:1:0::/48']],
    ['2001:DB8:0001:02f3::6', ['2001:db8:1:2f3::/64', '2001:db8:1:200::/56', '2001:db8:1:0::/48']],
    ['2001:db8::6', ['2001:db8:0:0::/64', '2001:db8:0:0::/56', '2001:db8:0:0::/48']],
    ['::1', ['0:0:0:0::/64', '0:0:0:0::/56', '0:0:0:0::/48']],
    ['fe80::1%eth0', ['fe80:0:0:0::/64', 'fe80:0:0:0::/56', 'fe80:0:0:0::/48']],
  ] as const) {
    const networks = networksOf(address);
    assert.deepEqual(
      networks.map(({ name }) => name),
      network,
    );
    assert.deepEqual(
      networks.map(({ times }) => times),
      [1, 4, 16].slice(0, networks.length),
    );
    assert.equal(widestNetworkOf(address), network.at(-1));
  }
});

test('one who has 48 or 56 bits of IPv6 guesses no more keys than a few networks may, and keeps nobody else out', () => {
  for (const [bits, times] of [
    [56, 4],
    [48, 16],
  ] as const) {
    const limit = new RateLimit(10, () => 0);
    const subnets = 2 ** (64 - bits);
    const addressOf = (index: number): string => `2001:db8:7:${((index * 257) % subnets).toString(16)}::1`;
    let passed = 0;
    for (let index = 0; index < 2_000; index++) {
      try {
        limit.check(networksOf(addressOf(index)));
        limit.takeOf(networksOf(addressOf(index)));
        passed++;
      } catch (error) {
        assert.ok(error instanceof ApiError && error.code === 'rate_limit_exceeded');
      }
    }
    assert.equal(passed, 10 * times, `/${bits}`);
    limit.check(networksOf('2001:db8:8::1'));
  }
});

test('answers come whole or in pieces; one that fails on its way is cut', async (t) => {
  const host = await openHost(t, routes);
  assert.equal((await host.ask('GET', '/v1/pieces')).body, 'piece 0\npiece 1\npiece 2\n');
  await assert.rejects(host.ask('GET', '/v1/pieces?break=true'));
});

test('a failure of ours is answered without its reason, and logged', async (t) => {
  const host = await openHost(t, routes);
  const answer = await host.ask('GET', '/v1/broken');
  assertEnvelope(answer, 'internal_error');
  assert.doesNotMatch(answer.body, /secret text/);
  assert.equal(host.failures.length, 1);
});

test('answers are kept by nobody and framed nowhere', async (t) => {
  const host = await openHost(t, routes);
  const { headers } = await host.ask('GET', '/v1/things/all');
  assert.equal(headers['cache-control'], 'no-store');
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.equal(headers['cross-origin-resource-policy'], 'same-origin');
  assert.match(headers['content-security-policy'] ?? '', /default-src 'none'.*frame-ancestors 'none'/);
  assert.equal(headers['access-control-allow-origin'], undefined);
});

test('a change is recorded with who made it', async (t) => {
  const host = await openHost(t, routes);
  await host.account('a');
  const key = await host.key('a', 'admin');
  const made = await host.ask('POST', '/v1/things', {
    key,
    json: { name: 'n' },
    headers: [['idempotency-key', 'once']],
  });
  assert.deepEqual(made.json()['reported'], [{ name: 'n' }, 'once']);
  const [entry, ...others] = await host.services.operations.repositories.listAudit({ accountId: 'a', limit: 10 });
  assert.equal(others.length, 0);
  assert.ok(entry);
  const { id: _, at: __, actor, ...rest } = entry;
  assert.deepEqual(rest, {
    accountId: 'a',
    action: 'thing.make',
    target: 'one',
    before: null,
    after: '{"name":"n"}',
    requestId: made.headers['x-request-id'],
    address: '127.0.0.1',
    outcome: 'done',
    input: null,
  });
  assert.equal(actor.kind, 'key');
  assert.equal(actor.name, 'admin of a');
});
