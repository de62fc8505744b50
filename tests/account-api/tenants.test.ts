import assert from 'node:assert/strict';
import { test } from 'node:test';

import { accountRoutes } from '../../src/account-api/routes.ts';
import type { TestRequest } from './host.ts';
import { canary, least, september, twoTenants } from './two-tenants.ts';
import type { Shape } from './two-tenants.ts';

/**
 * Nobody learns anything of another account (reliability §3.5): an id of another and an id of nothing are one answer on every
 * route that takes one, and no list, sum or export of one account holds a word of the other.
 */

/** Ids that are not of an account: of the server, of a person's own, or of a page that anybody may open. */
const elsewhere = /^\/v1\/(admin\/|heads\/|auth\/(passkeys|callback|oidc|providers)\/|payments\/demo\/)/;

/** An id of the same form that is nobody's. */
function strangeId(id: string): string {
  const last = id.slice(-1);
  return id.slice(0, -1) + (last === '0' ? '1' : '0');
}

test('an id of another account is as one of nothing, on every route that takes one', async (t) => {
  const { host, a, b } = await twoTenants(t);
  const taking = accountRoutes.filter(({ path }) => path.includes('{') && !elsewhere.test(path));
  assert.ok(taking.length >= 20, String(taking.length));
  for (const route of taking) {
    const begins = route.path.slice(0, route.path.indexOf('{'));
    const id = b.ids[begins];
    assert.ok(id !== undefined, `there is no id of the other account for ${route.path}`);
    const request: TestRequest = {
      ...(route.access === 'user'
        ? { headers: [['cookie', [...a.browser.cookies].map(([name, value]) => `${name}=${value}`).join('; ')]] }
        : { key: a.key }),
      ...(route.body === undefined || route.body === 'raw' ? {} : { json: least(route.body as Shape) }),
    };
    const answers = [];
    for (const one of [id, strangeId(id)])
      answers.push(await host.ask(route.method.toUpperCase(), route.path.replace(/\{\w+\}/, one), request));
    const [others, nobodys] = answers.map(({ status, body, headers }) => ({
      status,
      body: body.replaceAll(/req_[0-9a-f]{12}/g, 'req_'),
      type: headers['content-type'],
    }));
    assert.deepEqual(others, nobodys, `${route.method} ${route.path}`);
    assert.equal(others!.status, 404, `${route.method} ${route.path}: ${others!.body}`);
  }
  // Nothing of it has changed the other account.
  for (const path of Object.keys(b.ids)) {
    if (/^\/v1\/(webhook_deliveries|auth|invites|batch_runs)/.test(path)) continue;
    const answer = await host.ask('GET', path + b.ids[path]!, { key: b.key });
    assert.equal(answer.status, 200, `${path}: ${answer.body}`);
  }
  const batches = (await host.ask('GET', '/v1/batch_runs', { key: b.key })).json() as { data: { status: string }[] };
  assert.deepEqual(
    batches.data.map(({ status }) => status),
    ['validating'],
  );
});

test('what is asked for by a parameter is not answered for another account either', async (t) => {
  const { host, a, b } = await twoTenants(t);
  const ask = async (id: string) => await host.ask('GET', `/v1/generation?id=${id}`, { key: a.key });
  const [others, nobodys] = [await ask(b.ids['/v1/generation?id=']!), await ask('req_000000000000')];
  assert.deepEqual([others.status, nobodys.status], [404, 404]);
  assert.equal(others.body.replaceAll(/req_\w+/g, ''), nobodys.body.replaceAll(/req_\w+/g, ''));
});

test('no list, sum or export of an account holds a word of another', async (t) => {
  const { host, a, b, clock } = await twoTenants(t);
  const secrets = [canary, 'acct_b', ...Object.values(b.ids)];
  const range = `start_time=${september / 1000}&end_time=${Math.floor(clock.now / 1000)}`;
  let looked = 0;
  for (const route of accountRoutes) {
    const { access, method, path } = route;
    if (method !== 'get' || path.includes('{') || typeof access === 'string') continue;
    const parameters = (route.query as Shape | undefined)?.properties ?? {};
    const query = [
      ...('start_time' in parameters ? [range] : []),
      ...('id' in parameters ? [`id=${a.ids['/v1/generation?id=']}`] : []),
    ].join('&');
    const url = query === '' ? path : `${path}?${query}`;
    const answer = await host.ask('GET', url, { key: a.key });
    // There is a proof when the day is over.
    assert.equal(answer.status, path === '/v1/generation/proof' ? 409 : 200, `${url}: ${answer.body}`);
    for (const secret of secrets) assert.ok(!answer.body.includes(secret), `${path} tells ${secret}: ${answer.body}`);
    looked++;
    // And the same question of the other account tells of it, or there is nothing to tell.
    const own = await host.ask('GET', url, { key: b.key });
    assert.ok(!own.body.includes('acct_a') && !own.body.includes('alone-a'), path);
  }
  assert.ok(looked >= 25, String(looked));
});
