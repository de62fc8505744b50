import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import { migrate } from '../../src/store/migrations/migrate.ts';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { temporaryFolder } from '../store/fixture.ts';
import { makeAccounts } from './accounts.ts';
import { keys, users, compareWithRows } from './sums.ts';

test('reports are what the rows come to, whatever has been added up, in every zone', async (t) => {
  const db: Kysely<Database> = kyselyOn(openConnection(join(temporaryFolder(t), 'sums.db')));
  t.after(() => db.destroy());
  await migrate(db, 'sqlite');
  await makeAccounts(
    db,
    ['acct_a', 'acct_b'],
    keys.map((id) => ({ id, accountId: 'acct_a', userId: users[id] ?? null })),
  );
  const seed = Math.floor(Math.random() * 2 ** 31);
  t.diagnostic(`seed ${seed}`);
  await compareWithRows(db, seed, 25);
  assert.ok(await db.selectFrom('usage_day').select('day').executeTakeFirst(), 'days were added up');
});
