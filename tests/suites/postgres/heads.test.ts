/** Signed days on PostgreSQL: as in tests/store/heads.test.ts, and a copy of SQLite's has the same hashes. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { sql, type Kysely } from 'kysely';
import { Notices, type NoticeServices } from '../../../src/billing/notices/notices.ts';
import { WebhookEvents } from '../../../src/notifications/webhooks/events.ts';
import { UsageHeads } from '../../../src/app/usage-heads.ts';
import { uuidMaker } from '../../../src/platform/ids/uuid.ts';
import { copyDatabase } from '../../../src/store/copy/copy-database.ts';
import type { Database } from '../../../src/store/database.ts';
import type { UsageRow } from '../../../src/store/ledger.ts';
import { migrate } from '../../../src/store/migrations/migrate.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import type { Repositories } from '../../../src/store/repositories/repositories.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../../src/store/sqlite/dialect.ts';
import { temporaryFolder } from '../../store/fixture.ts';
import {
  addRequests,
  completeAt,
  differencesIn,
  everyChangeIsNamed,
  firstDay,
  keysRotate,
  lateRequestsAreSigned,
  proofsHold,
  requestsInHeads,
  servicesOf,
  signedDays,
  signedUsage,
  signUntil,
} from '../../store/heads.ts';
import { makeAccounts } from '../../usage/accounts.ts';
import { openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

test('days are signed, every change is named, late requests follow, and keys rotate', async (t) => {
  const url = await server.createDatabase();
  await openReplica(t, url);
  const db = kyselyOnPostgres({ url }, 2);
  t.after(() => db.destroy());
  await makeAccounts(db, ['acct_a', 'acct_b', 'acct_c', 'acct_d'], []);
  const rows = await signedUsage(db);
  await everyChangeIsNamed(db, rows, async (transaction: Kysely<Database>) => {
    await sql`set local session_replication_role = replica`.execute(transaction);
  });
  await proofsHold(
    db,
    rows.filter((_, index) => index % 900 === 0),
    0,
  );
  await lateRequestsAreSigned(db);
  await keysRotate(db, 14);
});

test('a copy from SQLite has the same heads, whatever its texts are, and goes on with the chain', async (t) => {
  const source = kyselyOn(openConnection(join(temporaryFolder(t), 'source.db')));
  t.after(() => source.destroy());
  await migrate(source, 'sqlite');
  await makeAccounts(source, ['acct_a', 'acct_Ä', 'acct_ä', 'acct_z'], []);
  await source.updateTable('account').set({ available: 0n }).execute();
  const rows: UsageRow[] = [];
  for (const accountId of ['acct_a', 'acct_Ä', 'acct_ä', 'acct_z'])
    rows.push(...(await addRequests(source, { accountId, day: 0, count: 20 })));
  await sql`drop trigger usage_no_update`.execute(source);
  const odd = '\u0001\b\t\n\f\r\u001f"\\/\u007f\u0080é\u2028🙂 </script>';
  await source
    .updateTable('usage')
    .set({ model_id: odd, tags: JSON.stringify([odd]), client_id: odd })
    .execute();
  await source
    .updateTable('usage')
    .set({ cost: 0n, uncharged: 0n, prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, ending: 'failed' })
    .execute();
  await signUntil(source, completeAt(0));
  assert.deepEqual(await differencesIn(source), []);
  const url = await server.createDatabase();
  const db = kyselyOnPostgres({ url }, 1);
  t.after(() => db.destroy());
  await copyDatabase(
    { db: source, dialect: 'sqlite', shown: 'the file' },
    { db, dialect: 'postgres', shown: 'the database' },
    { signal: AbortSignal.timeout(60_000), nowMs: completeAt(0), onProgress: () => {} },
  );
  assert.deepEqual(await differencesIn(db), []);
  const some = rows.filter((_, index) => index % 9 === 0);
  await proofsHold(source, some, 0);
  await proofsHold(db, some, 0);
  await addRequests(db, { accountId: 'acct_ä', day: 1, count: 3 });
  await signUntil(db, completeAt(1));
  assert.deepEqual(await differencesIn(db), []);
  assert.deepEqual(await requestsInHeads(db, 'acct_ä'), [
    [20n, 0n],
    [3n, 0n],
  ]);
});

test('of two replicas that sign a day at once one announces it, and two that tell of it tell each account once', async (t) => {
  const url = await server.createDatabase();
  const replicas = [await openReplica(t, url), await openReplica(t, url)].map(({ store }) => store.repositories);
  const [repositories] = replicas as [Repositories];
  const db = kyselyOnPostgres({ url }, 1);
  t.after(() => db.destroy());
  await makeAccounts(db, ['acct_a'], []);
  await addRequests(db, { accountId: 'acct_a', day: 0, count: 20 });
  const now = completeAt(0);
  const signers = replicas.map((one) => new UsageHeads({ ...servicesOf(db, now), repositories: one }));
  await Promise.all(signers.map((one) => one.run(Infinity)));
  assert.equal(await signedDays(db), 1);
  const notices = await repositories.listNotices({ after: '', limit: 10 });
  assert.deepEqual(
    notices.map(({ id }) => id),
    [`evt_day_${new Date(firstDay).toISOString().slice(0, 10)}`],
  );
  const accounts = Array.from({ length: 120 }, (_, index) => `acct_${String(index).padStart(3, '0')}`);
  for (const accountId of accounts)
    await repositories.addWebhookEndpoint({
      ...{ id: `whe_${accountId}`, accountId, url: 'http://127.0.0.1:1/', description: '', events: null },
      ...{ at: now, max: 1 },
    });
  await Promise.all(
    replicas.map(async (one) => {
      const services = { repositories: one, now: () => now };
      const events = new WebhookEvents({ ...services, newId: uuidMaker(), woken: () => {} });
      const job = new Notices({ ...services, events } as unknown as NoticeServices);
      while (await job.notify());
    }),
  );
  assert.deepEqual(await repositories.listNotices({ after: '', limit: 10 }), []);
  for (const accountId of accounts) {
    const delivered = await repositories.listDeliveries({ accountId, endpointId: `whe_${accountId}`, limit: 10 });
    assert.deepEqual(
      delivered.map(({ eventId }) => eventId),
      [`${notices[0]!.id}_${accountId}`],
    );
  }
});
