/** What an operator who views an account gets from every route, and what it changes: nothing. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { DatabaseSync } from '@photostructure/sqlite';

import type { AccountRoute } from '../../src/account-api/route.ts';
import { accountRoutes } from '../../src/account-api/routes.ts';
import { Browser, password, person } from '../accounts/users/person.ts';
import { openStore, temporaryFolder } from '../store/fixture.ts';
import { operatorOf, viewClaims } from './view-claims.ts';
import { least, september, twoTenants } from './two-tenants.ts';
import type { Shape } from './two-tenants.ts';

viewClaims(async (t) => await openStore(t, join(temporaryFolder(t), 'views.db')));

const nameOf = ({ method, path }: AccountRoute): string => `${method.toUpperCase()} ${path}`;

/** Every row of every table. */
function contentOf(file: string): Record<string, unknown[]> {
  const connection = new DatabaseSync(file, { readOnly: true });
  const tables = connection.prepare(`select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'`);
  const content = Object.fromEntries(
    (tables.all() as { name: string }[]).map(({ name }) => [
      name,
      connection
        .prepare(`select * from "${name}"`)
        .all()
        .map((row) => JSON.stringify(row, printed)),
    ]),
  );
  connection.close();
  return content;
}
const printed = (_name: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);

async function scene(t: Parameters<typeof twoTenants>[0]) {
  const { host, clock, a, b } = await twoTenants(t);
  const { repositories } = host.services.operations;
  await operatorOf(host);
  const operator = new Browser(host);
  await operator.signIn('op@example.org', password);
  const id = await person(host, 'viewer@example.org');
  await repositories.addMember({ accountId: b.id, userId: id, role: 'viewer', at: clock.now });
  const viewer = new Browser(host);
  await viewer.signIn('viewer@example.org', password);
  const begun = await operator.ask('POST', `/v1/admin/accounts/${b.id}/view`);
  assert.equal(begun.status, 201, JSON.stringify(begun.body));
  const ask = async (browser: Browser, route: AccountRoute, of: typeof b) => {
    const begins = route.path.slice(0, route.path.indexOf('{'));
    const parameters = (route.query as Shape | undefined)?.properties ?? {};
    const query = [
      ...('start_time' in parameters
        ? [`start_time=${september / 1000}&end_time=${Math.floor(clock.now / 1000)}`]
        : []),
      ...('id' in parameters ? [`id=${of.ids['/v1/generation?id=']}`] : []),
    ].join('&');
    const answer = await host.ask(
      route.method.toUpperCase(),
      route.path.replaceAll(/\{\w+\}/g, of.ids[begins] ?? 'x'.repeat(16)) + (query === '' ? '' : `?${query}`),
      {
        headers: [
          ['cookie', [...browser.cookies].map(([name, value]) => `${name}=${value}`).join('; ')],
          ['x-account-id', b.id],
        ],
        ...(route.body === undefined || route.body === 'raw' ? {} : { json: least(route.body as Shape) }),
      },
    );
    return {
      status: answer.status,
      // Each sees their own last sign-in alone.
      body: answer.body
        .replaceAll(/req_[0-9a-f]{12}/g, 'req_')
        .replaceAll(/"last_sign_in_at":\d+/g, '"last_sign_in_at":null'),
    };
  };
  return { host, a, b, operator, viewer, ask };
}

/** What only the session's own way back may be. */
const waysOut = ['DELETE /v1/auth/view', 'POST /v1/auth/sign-out'];

test('an operator who views an account gets what a viewer of it gets by reading, and everything else is refused', async (t) => {
  const { host, a, b, operator, viewer, ask } = await scene(t);
  assert.deepEqual(
    accountRoutes
      .filter(({ evenViewing }) => evenViewing === true)
      .map(nameOf)
      .toSorted(),
    waysOut,
  );
  const before = contentOf(host.file);
  const counts = { read: 0, ofRole: 0, refused: 0, own: 0 };
  for (const route of accountRoutes) {
    const { access, method, stepUp, evenViewing } = route;
    // No credentials are read there; what an invitation does is in view-claims.ts.
    if (access === 'anyone' || evenViewing === true) continue;
    const answer = await ask(operator, route, b);
    const what = `${nameOf(route)}: ${answer.status} ${answer.body.slice(0, 300)}`;
    if (method !== 'get' || stepUp === true || access === 'operator') {
      assert.equal(answer.status, 403, what);
      assert.match(
        answer.body,
        /"code":"http_403".*"viewing_account":"acct_b"|"viewing_account":"acct_b".*"http_403"/,
        what,
      );
      assert.ok(!answer.body.includes('step_up_required'), `${what}: no proof would help`);
      counts.refused++;
    } else if (access === 'user') {
      // The person's own: who they are, where they are signed in.
      assert.equal(answer.status, 200, what);
      counts.own++;
    } else {
      const asViewer = await ask(viewer, route, b);
      assert.deepEqual(answer, asViewer, what);
      // Asked without a management key, `GET /v1/key` has nothing to describe.
      if (route.path !== '/v1/key') assert.equal(answer.status === 403, !access.includes('viewer'), what);
      counts[answer.status === 403 ? 'ofRole' : 'read']++;
      // An id of another account is as one of nothing.
      if (route.path.includes('{') && access.includes('viewer')) {
        const others = await ask(operator, route, a);
        assert.equal(others.status, 404, nameOf(route));
      }
    }
    // A method that a route does not have is none either.
    if (method === 'get') {
      const head = await host.ask('HEAD', '/v1/keys', {
        headers: [['cookie', [...operator.cookies].map(([name, value]) => `${name}=${value}`).join('; ')]],
      });
      assert.equal(head.status, 200);
    }
  }
  assert.ok(counts.read >= 25 && counts.ofRole >= 8 && counts.refused >= 60 && counts.own >= 4, JSON.stringify(counts));
  assert.deepEqual(contentOf(host.file), before, 'nothing was written, not even by reading');
  assert.equal((await operator.ask('DELETE', '/v1/auth/view')).status, 200);
  assert.equal((await operator.ask('GET', '/v1/admin/accounts')).status, 200);
  assert.deepEqual(host.failures, []);
});

test('an operator whose rights are taken sees the account no longer', async (t) => {
  const { host, b, operator } = await scene(t);
  assert.equal((await operator.ask('GET', '/v1/keys')).status, 200);
  const connection = new DatabaseSync(host.file);
  connection.prepare('delete from server_operator').run();
  connection.close();
  const me = (await operator.ask('GET', '/v1/me')).body;
  assert.deepEqual([me['viewing'], me['is_operator']], [null, false]);
  const asked = await host.ask('GET', '/v1/keys', {
    headers: [
      ['cookie', [...operator.cookies].map(([name, value]) => `${name}=${value}`).join('; ')],
      ['x-account-id', b.id],
    ],
  });
  assert.equal(asked.status, 404, 'as every other account that is not theirs');
  await host.services.users.tidy();
  const { data } = (await host.ask('GET', '/v1/audit_logs', { key: b.key })).json() as {
    data: { action: string; after: { because: string } }[];
  };
  assert.deepEqual([data[0]!.action, data[0]!.after.because], ['account.view_end', 'rights']);
});
