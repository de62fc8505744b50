import assert from 'node:assert/strict';
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

export const september = Date.UTC(2026, 8, 1);
/** Stands in every name that the other account has. */
export const canary = 'canary-b';

export interface Tenant {
  readonly id: string;
  readonly key: string;
  readonly browser: Browser;
  /** By the beginning of the paths that take such an id. */
  readonly ids: Readonly<Record<string, string>>;
}

/** Two accounts that have something of everything, each with an owner who is signed in and a key. */
export async function twoTenants(t: TestContext) {
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

export interface Shape {
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
export function least(schema: Shape): unknown {
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
