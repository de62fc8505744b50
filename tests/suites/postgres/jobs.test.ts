/** Invoices, alerts and webhooks on PostgreSQL: each once, whichever of several replicas is at it. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { TestContext } from 'node:test';

import { Alerts } from '../../../src/billing/alerts/alerts.ts';
import { Deliveries } from '../../../src/notifications/webhooks/deliveries.ts';
import { WebhookEvents } from '../../../src/notifications/webhooks/events.ts';
import { endpointSecret } from '../../../src/notifications/webhooks/signature.ts';
import { createNameResolver } from '../../../src/platform/outbound/resolver.ts';
import { createSecretKey } from 'node:crypto';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { sql } from 'kysely';
import { account, dayMs, issuedTo, moved, paperOn, refunded, spent } from '../../billing/invoices/invoicing.ts';
import { uuid } from '../../store/fixture.ts';
import { startReceiver } from '../../notifications/webhooks/receiver.ts';
import { noticeClaims } from '../../billing/notices/claims.ts';
import { differencesOf, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

noticeClaims(async (t) => {
  const url = await server.databaseWithTables();
  return {
    store: (await openReplica(t, url)).store,
    differences: () => differencesOf(url),
    release: () => {},
    hold: () => Promise.reject(new Error('nothing runs here')),
  };
});

const september = Date.UTC(2026, 8, 1);
const october = Date.UTC(2026, 9, 1);
const november = Date.UTC(2026, 10, 1);

async function replicasOf(t: TestContext) {
  const url = await server.databaseWithTables();
  const one = await openReplica(t, url);
  const other = await openReplica(t, url);
  return { url, stores: [one.store, other.store] as const, replicas: [one, other] as const };
}

test('two replicas that close the same month issue each document once, without a gap', async (t) => {
  const { url, stores, replicas } = await replicasOf(t);
  const papers = stores.map((store) => paperOn(store, november + dayMs));
  const [paper] = papers as [(typeof papers)[number], ...unknown[]];
  const ids = Array.from({ length: 12 }, (_, index) => `acct_${String(index).padStart(2, '0')}`);
  for (const id of ids) {
    await account(paper, id, september);
    await moved(paper, id, 1_000n, september + 1);
    await replicas[0].store.ledger.leases.lease(id, 500n);
    const row = await spent(paper, id, 70n, september + dayMs);
    await spent(paper, id, 30n, october + dayMs);
    await refunded(paper, row, 5n, october + 2 * dayMs);
  }
  // Each takes its turn under the lock, as the job does, and also without it: what one has closed the other leaves alone.
  await Promise.all(
    stores.map(async (store, index) => {
      while (await store.alone(() => papers[index]!.invoices.issueDue()));
    }),
  );
  for (const id of ids) {
    const issued = await issuedTo(paper, id);
    assert.deepEqual(
      issued.map(({ kind, month, total }) => [kind, month, total]),
      [
        ['statement', '2026-09', 70n],
        ['statement', '2026-10', 30n],
        ['credit_note', '2026-10', 5n],
      ],
    );
    assert.equal(issued[1]!.data.statement!.closingMicrocents, '905');
  }
  const all = await stores[0].repositories.listInvoices({ limit: 1_000 });
  assert.deepEqual(
    all.map(({ number }) => number).sort(),
    all.map((_, index) => `TH-2026-${String(index + 1).padStart(6, '0')}`),
  );
  const db = kyselyOnPostgres({ url }, 1);
  t.after(() => db.destroy());
  for (const statement of [`update invoice set data = '{}'`, 'delete from invoice', 'truncate invoice'])
    await assert.rejects(sql.raw(statement).execute(db), /invoice is immutable/, statement);
});

test('two replicas that check an alert notify of it once', async (t) => {
  const { stores } = await replicasOf(t);
  const [{ repositories, ledger }] = stores;
  const paper = { store: stores[0] };
  const now = november + dayMs;
  await account(paper, 'acct_a', september);
  await moved(paper, 'acct_a', 1_000n, september + 1);
  await ledger.leases.lease('acct_a', 500n);
  await spent(paper, 'acct_a', 70n, now - 1_000, { tags: '["x"]' });
  const common = {
    name: 'x',
    runwayDays: null,
    recipients: { members: ['user_1'], addresses: [] },
    isWebhook: true,
  } as const;
  for (const [index, subjectKind] of (['account', 'tag', 'key', 'member'] as const).entries())
    await repositories.addAlert({
      id: `alrt_${index}`,
      accountId: 'acct_a',
      setting: {
        ...common,
        kind: 'spend',
        thresholdMicrocents: 50n,
        per: 'month',
        subjectKind,
        subject: subjectKind === 'account' ? null : 'x',
      },
      at: now,
      max: 10,
    });
  const alerts = stores.map(
    (store) =>
      new Alerts({ repositories: store.repositories, timeZoneOf: async () => 'UTC', newId: uuid, now: () => now }),
  );
  await Promise.all(alerts.map((one) => one.look()));
  const notices = await repositories.listNotices({ after: '', limit: 10 });
  assert.deepEqual(
    notices.map(({ type, data }) => [type, (JSON.parse(data) as { alert_id: string }).alert_id]).sort(),
    [
      ['spend_alert.fired', 'alrt_0'],
      ['spend_alert.fired', 'alrt_1'],
    ],
  );
  assert.deepEqual(await repositories.memberAddresses({ accountId: 'acct_a', userIds: ['user_1'] }), []);
});

test('two replicas send each delivery once', async (t) => {
  const { stores } = await replicasOf(t);
  const receiver = await startReceiver(t);
  await account({ store: stores[0] }, 'acct_a', september);
  await stores[0].repositories.addWebhookEndpoint({
    id: 'whe_1',
    accountId: 'acct_a',
    url: receiver.url,
    description: '',
    events: null,
    at: september,
    max: 5,
  });
  const master = createSecretKey(Buffer.alloc(32, 1));
  const events = new WebhookEvents({
    repositories: stores[0].repositories,
    newId: uuid,
    now: () => stores[0].now(),
    woken: () => {},
  });
  for (let n = 0; n < 20; n++) await events.emit('acct_a', 'key.revoked', { n }, `evt_${n % 15}`);
  const deliveries = stores.map(
    (store) =>
      new Deliveries({
        repositories: store.repositories,
        rules: () => ({ allowedHosts: new Set([receiver.host]), ownHosts: new Set() }),
        resolver: () => createNameResolver([]),
        dial: { httpsPort: 443, certificates: undefined },
        secretOf: (id, version) => endpointSecret(master, id, version),
        disableAfterMs: () => dayMs,
        now: () => store.now() + 1_000,
        log: { answer: () => {}, request: () => {}, replay: () => {}, service: () => {}, linesDropped: 0 },
      }),
  );
  const { signal } = new AbortController();
  await Promise.all(
    deliveries.map(async (one) => {
      while (await one.deliverDue(signal));
    }),
  );
  assert.equal(receiver.received.length, 15);
  const listed = await stores[0].repositories.listDeliveries({ accountId: 'acct_a', endpointId: 'whe_1', limit: 100 });
  assert.ok(listed.every(({ state, tries }) => state === 'delivered' && tries === 1));
  assert.equal(await stores[0].repositories.forgetDeliveries({ before: stores[0].now() + dayMs, limit: 10 }), 10);
});
