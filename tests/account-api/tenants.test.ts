import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { accountRoutes } from '../../src/account-api/routes.ts';
import type { Config } from '../../src/config/config.ts';
import { uuidMaker } from '../../src/platform/ids/uuid.ts';
import { account, dayMs, moved } from '../billing/invoices/invoicing.ts';
import { withDemoPayments } from '../billing/payments/demo-services.ts';
import { Browser, password, person } from '../accounts/users/person.ts';
import { usage } from '../store/fixture.ts';
import { configOf, startReceiver } from '../notifications/webhooks/receiver.ts';
import { openHost } from './host.ts';
import type { TestRequest } from './host.ts';

/**
 * Nobody learns anything of another account (reliability §3.5): an id of another and an id of nothing are one answer on every
 * route that takes one, and no list, sum or export of one account holds a word of the other.
 */
const september = Date.UTC(2026, 8, 1);
/** Stands in every name that the other account has. */
const canary = 'canary-b';

interface Tenant {
  readonly id: string;
  readonly key: string;
  readonly browser: Browser;
  /** By the beginning of the paths that take such an id. */
  readonly ids: Readonly<Record<string, string>>;
}

async function scene(t: TestContext) {
  const receiver = await startReceiver(t);
  const clock = { now: september };
  const configured = configOf([receiver.host]);
  const host = await openHost(t, accountRoutes, () => clock.now, {
    signIn: { signUp: 'open', oidc: [] },
    config: {
      ...configured,
      plans: [],
      models: [],
      server: { ...configured.server, limits: { concurrencyPerAccountMax: 64 } } as unknown as Config['server'],
    },
    more: withDemoPayments,
  });
  const { ledger, repositories } = host.services.operations;
  const paper = { store: { ledger: ledger as never, repositories } };

  const tenant = async (id: string, name: string): Promise<Tenant> => {
    await account(paper, id, september, name);
    await moved(paper, id, 50_000_000n, clock.now + 1);
    const key = await host.key(id, 'owner');
    const ask = async (method: string, path: string, json?: unknown) => {
      const answer = await host.ask(method, path, { key, ...(json === undefined ? {} : { json }) });
      assert.ok(answer.status < 300, `${method} ${path}: ${answer.body}`);
      return JSON.parse(answer.body) as Record<string, unknown>;
    };
    const userId = await person(host, `${name}@example.org`, name);
    await repositories.addMember({ accountId: id, userId, role: 'owner', at: clock.now });
    const browser = new Browser(host);
    await browser.signIn(`${name}@example.org`, password);
    const made = (await ask('POST', '/v1/keys', { name, tags: [name] })) as { data: { id: string } };
    const invite = await ask('POST', '/v1/invites', { email: `${name}-guest@example.org`, role: 'viewer' });
    await ask('POST', '/v1/spend_limit', { threshold_amount: 1000, currency: 'USD', interval: 'month' });
    const alert = await ask('POST', '/v1/spend_alerts', {
      kind: 'spend',
      threshold_amount: 100,
      interval: 'month',
      recipients: { addresses: [`${name}@example.org`] },
    });
    const endpoint = await ask('POST', '/v1/webhook_endpoints', { url: receiver.url });
    await ask('POST', `/v1/webhook_endpoints/${String(endpoint['id'])}/test`);
    await host.jobs.run('webhooks');
    const deliveries = await ask('GET', `/v1/webhook_endpoints/${String(endpoint['id'])}/deliveries`);
    const topup = await ask('POST', '/v1/credits/topups', { amount_cents: 500 });
    const row = usage(id, 1_000n, {
      requestId: uuidMaker(() => clock.now)(),
      keyId: made.data.id,
      startedAt: clock.now,
      endedAt: clock.now + 5,
      tags: `["${name}"]`,
    });
    await ledger.settle(row);
    const sent = id.at(-1)!.repeat(32);
    const file = { id: sent, accountId: id, bytes: 1, createdAt: clock.now, expiresAt: null };
    await repositories.beginFile({ ...file, bytesMax: 1, at: clock.now, bounds: { filesMax: 9, bytesMax: 9 } });
    await repositories.finishFile({ ...file, name: `${name}.jsonl`, mediaType: 'text/plain', purpose: 'batch' });
    await repositories.createBatch({
      batch: {
        ...{
          id: sent,
          accountId: id,
          keyId: made.data.id,
          wire: 'openai',
          endpoint: '/v1/embeddings',
          inputFileId: sent,
        },
        ...{
          createdAt: clock.now,
          expiresAt: clock.now + dayMs,
          requests: 1,
          outputExpiresAfterMs: null,
          metadata: null,
        },
      },
      openMax: 1,
    });
    const sessions = (await browser.ask('GET', '/v1/auth/sessions')).body['data'] as { id: string }[];
    return {
      id,
      key,
      browser,
      ids: {
        '/v1/keys/': made.data.id,
        '/v1/batch_runs/': `batch_${sent}`,
        '/v1/members/': userId,
        '/v1/invites/': String(invite['id']),
        '/v1/spend_alerts/': String(alert['id']),
        '/v1/webhook_endpoints/': String(endpoint['id']),
        '/v1/webhook_deliveries/': (deliveries['data'] as { id: string }[])[0]!.id,
        '/v1/credits/topups/': String(topup['id']),
        '/v1/auth/sessions/': sessions[0]!.id,
        '/v1/generation?id=': row.publicId,
      },
    };
  };
  const a = await tenant('acct_a', 'alone-a');
  const b = await tenant('acct_b', canary);
  clock.now = Date.UTC(2026, 9, 1) + dayMs;
  await host.jobs.run('invoices');
  // Payments leave receipts since this database was made, which is later than this scene.
  for (const { id } of [a, b])
    await moved({ store: { ledger: ledger as never, repositories } }, id, 1_000_000n, Date.now());
  await host.jobs.run('receipts');
  const firstOf = async ({ key }: Tenant, path: string): Promise<string> => {
    const listed = (await host.ask('GET', path, { key })).json() as { data: { id: string }[] };
    return listed.data[0]!.id;
  };
  // Sessions of a month ago have ended.
  for (const [tenant, name] of [
    [a, 'alone-a'],
    [b, canary],
  ] as const)
    await tenant.browser.signIn(`${name}@example.org`, password);
  const documents = {
    '/v1/invoices/': await firstOf(b, '/v1/invoices'),
    '/v1/receipts/': await firstOf(b, '/v1/receipts'),
  };
  const withDocuments: Tenant = { ...b, ids: { ...b.ids, ...documents } };
  return { host, clock, a, b: withDocuments };
}

/** Ids that are not of an account: of the server, of a person's own, or of a page that anybody may open. */
const elsewhere = /^\/v1\/(admin\/|heads\/|auth\/(passkeys|callback|oidc|providers)\/|payments\/demo\/)/;

interface Shape {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly required?: readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Shape[];
  readonly minimum?: number;
  readonly minLength?: number;
}

/** The smallest value that a schema takes; of optional fields the first, so that there is something to change. */
function least(schema: Shape): unknown {
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined) return schema.enum[0];
  if (schema.anyOf !== undefined) return least(schema.anyOf[0]!);
  switch (schema.type) {
    case 'object': {
      const names = Object.keys(schema.properties ?? {});
      const required = schema.required ?? [];
      const chosen = names.filter((name, index) => required.includes(name) || (index === 0 && required.length === 0));
      return Object.fromEntries(chosen.map((name) => [name, least(schema.properties![name]!)]));
    }
    case 'array':
      return [];
    case 'integer':
    case 'number':
      return schema.minimum ?? 1;
    case 'boolean':
      return false;
    case undefined:
    default:
      return 'x'.repeat(Math.max(1, schema.minLength ?? 1));
  }
}

/** An id of the same form that is nobody's. */
function strangeId(id: string): string {
  const last = id.slice(-1);
  return id.slice(0, -1) + (last === '0' ? '1' : '0');
}

test('an id of another account is as one of nothing, on every route that takes one', async (t) => {
  const { host, a, b } = await scene(t);
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
  const { host, a, b } = await scene(t);
  const ask = async (id: string) => await host.ask('GET', `/v1/generation?id=${id}`, { key: a.key });
  const [others, nobodys] = [await ask(b.ids['/v1/generation?id=']!), await ask('req_000000000000')];
  assert.deepEqual([others.status, nobodys.status], [404, 404]);
  assert.equal(others.body.replaceAll(/req_\w+/g, ''), nobodys.body.replaceAll(/req_\w+/g, ''));
});

test('no list, sum or export of an account holds a word of another', async (t) => {
  const { host, a, b, clock } = await scene(t);
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
