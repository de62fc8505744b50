/** Signed days on PostgreSQL: as in tests/store/heads.test.ts, and a copy of SQLite's has the same hashes. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { sql, type Kysely } from 'kysely';
import { copyDatabase } from '../../../src/store/copy/copy-database.ts';
import type { Database } from '../../../src/store/database.ts';
import type { UsageRow } from '../../../src/store/ledger.ts';
import { migrate } from '../../../src/store/migrations/migrate.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../../src/store/sqlite/dialect.ts';
import { temporaryFolder } from '../../store/fixture.ts';
import {
  addRequests,
  completeAt,
  differencesIn,
  everyChangeIsNamed,
  keysRotate,
  lateRequestsAreSigned,
  proofsHold,
  requestsInHeads,
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
