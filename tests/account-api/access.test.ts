import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { roles } from '../../src/account-api/route.ts';
import type { AccountRoute, Role } from '../../src/account-api/route.ts';
import { accountRoutes } from '../../src/account-api/routes.ts';
import { inRepository } from '../support/repository.ts';
import { openHost } from './host.ts';

/**
 * Who may call what, as somebody has read and agreed to it (access.md): a route that is new, or is opened to somebody, fails
 * here until it is written down there too.
 */
const table = inRepository('tests/account-api/access.md');

const nameOf = ({ method, path }: AccountRoute): string => `${method.toUpperCase()} ${path}`;

function rowOf(route: AccountRoute): string {
  const { access } = route;
  const may = (role: Role): string => (typeof access !== 'string' && access.includes(role) ? 'yes' : '');
  const others =
    access === 'anyone' ? 'anyone' : access === 'user' ? 'a person' : access === 'operator' ? 'operator' : '';
  return `| \`${nameOf(route)}\` | ${[...roles.map(may), others, route.stepUp === true ? 'yes' : ''].join(' | ')} |`;
}

/** However the table is spaced. */
const cellsOf = (line: string): string =>
  line
    .split('|')
    .map((cell) => cell.trim())
    .join('|');

test('every route is in the table of who may call it, as it is', () => {
  const written = readFileSync(table, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map(cellsOf);
  assert.deepEqual(written.toSorted(), accountRoutes.map(rowOf).map(cellsOf).toSorted());
});

test('no route that reads or changes an account is open to everybody', () => {
  const open = accountRoutes.filter(({ access }) => access === 'anyone').map(nameOf);
  for (const name of open)
    assert.match(
      name,
      / (\/v1\/(auth\/|owner$|heads(\/|$)|webhooks\/payments$|payments\/demo\/|invites\/)|\/heads$)/,
      name,
    );
});

test('a viewer changes nothing, but may leave', () => {
  for (const route of accountRoutes) {
    const { access, method } = route;
    if (nameOf(route) === 'DELETE /v1/members/{id}') continue;
    if (method !== 'get' && typeof access !== 'string') assert.ok(!access.includes('viewer'), nameOf(route));
  }
});

test('what each role may do is said by a route, for pages and programs: as the routes have it', async (t) => {
  const host = await openHost(t, accountRoutes);
  await host.account('acct_a');
  const answer = await host.ask('GET', '/v1/roles', { key: await host.key('acct_a', 'viewer') });
  assert.equal(answer.status, 200);
  const { data } = JSON.parse(answer.body.toString()) as { data: { role: Role; operations: string[] }[] };
  assert.deepEqual(
    data.map(({ role }) => role),
    roles,
  );
  for (const { role, operations } of data)
    for (const { access, operationId } of accountRoutes)
      assert.equal(operations.includes(operationId), typeof access !== 'string' && access.includes(role), operationId);
});

interface Shape {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly additionalProperties?: boolean | Shape;
  readonly items?: Shape;
  readonly anyOf?: readonly Shape[];
  readonly allOf?: readonly Shape[];
}

/** The places in a schema where an object with named members takes others as well. */
function openPlaces({ properties, additionalProperties, items, anyOf = [], allOf = [] }: Shape, at: string): string[] {
  const isOpen = properties !== undefined && Object.keys(properties).length > 0 && additionalProperties !== false;
  return [
    ...(isOpen ? [at] : []),
    ...Object.entries(properties ?? {}).flatMap(([name, inner]) => openPlaces(inner, `${at}.${name}`)),
    ...(items === undefined ? [] : openPlaces(items, `${at}[]`)),
    ...[...anyOf, ...allOf].flatMap((inner) => openPlaces(inner, at)),
  ];
}

test('no body has a field that its route does not name: nothing can be assigned beside what a route is about', () => {
  const found = accountRoutes.flatMap(({ body, ...route }) =>
    body === undefined || body === 'raw' ? [] : openPlaces(body as Shape, nameOf(route)),
  );
  assert.deepEqual(found, []);
});

test('a changing route refuses fields that would give rights, money or another account', async (t) => {
  const host = await openHost(t, accountRoutes);
  await host.account('acct_a');
  const key = await host.key('acct_a', 'owner');
  const extra = [
    'account',
    'account_id',
    'owner',
    'role_',
    'operator',
    'credit_nanos',
    '__proto__',
    'constructor',
    'id',
  ];
  let asked = 0;
  for (const route of accountRoutes) {
    const { body, method, path, access } = route;
    if (body === undefined || body === 'raw' || typeof access === 'string' || !access.includes('owner')) continue;
    const named = Object.keys((body as Shape).properties ?? {});
    for (const name of extra.filter((each) => !named.includes(each))) {
      const json = JSON.parse(`{${JSON.stringify(name)}:"x"}`) as unknown;
      const answer = await host.ask(method.toUpperCase(), path.replaceAll(/\{\w+\}/g, 'x'), { key, json });
      assert.ok(answer.status >= 400, `${nameOf(route)} ${name}`);
      if (answer.status !== 400) continue;
      const { error } = answer.json() as { error: { code: string } };
      assert.equal(error.code, 'unsupported_parameter', `${nameOf(route)} ${name}`);
      asked++;
    }
  }
  assert.ok(asked >= 50, String(asked));
});
