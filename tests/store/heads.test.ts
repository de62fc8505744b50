import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { sql, type Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { eraseAccount } from '../../src/store/erasure/erase-account.ts';
import { migrate } from '../../src/store/migrations/migrate.ts';
import { laterColumns, otherColumns, shownColumns } from '../../src/store/proofs/forms.ts';
import { auditPath, leafHash, rootOfPath, treeRoot } from '../../src/store/proofs/merkle.ts';
import { proveUsage } from '../../src/store/proofs/prove-row.ts';
import { removeUsage, type RemovalCursor } from '../../src/store/retention/removal.ts';
import { columnsOf } from '../../src/store/schema/tables.ts';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { makeAccounts } from '../usage/accounts.ts';
import { temporaryFolder, uuid } from './fixture.ts';
import {
  addRequests,
  completeAt,
  dayMs,
  differencesIn,
  everyChangeIsNamed,
  firstDay,
  keysRotate,
  lateRequestsAreSigned,
  proofsHold,
  signedDays,
  signedUsage,
  signUntil,
} from './heads.ts';

test('roots and paths are those of RFC 6962, at every size and place', () => {
  // The test vectors of Certificate Transparency: https://github.com/google/certificate-transparency (merkle_tree_test)
  const bytes = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'];
  const leaves = bytes.map((hex) => leafHash(Buffer.from(hex, 'hex').toString('latin1')));
  const roots = [
    'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
    '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
    'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
    'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
    'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
    '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
    '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
    'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
    '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
  ];
  for (const [size, root] of roots.entries())
    assert.equal(Buffer.from(treeRoot(leaves.slice(0, size))).toString('hex'), root);
  for (let size = 1; size < 70; size++) {
    const all = Array.from({ length: size }, (_, index) => leafHash(String(index)));
    for (const [index, leaf] of all.entries())
      assert.deepEqual(rootOfPath(leaf, auditPath(all, index)), treeRoot(all), `${index} of ${size}`);
  }
});

test('each column of a request is in what is signed', () => {
  assert.deepEqual([...shownColumns, ...otherColumns, ...laterColumns].sort(), Object.keys(columnsOf('usage')).sort());
});

async function unlock(db: Kysely<Database>): Promise<void> {
  for (const table of ['usage', 'usage_head', 'day_head'])
    for (const change of ['update', 'delete']) await sql.raw(`drop trigger ${table}_no_${change}`).execute(db);
}

test('days are signed, every change is named, late requests follow, keys rotate, and an erased account leaves valid heads', async (t) => {
  const connection = openConnection(join(temporaryFolder(t), 'heads.db'));
  connection.exec('pragma synchronous = off');
  const db = kyselyOn(connection);
  t.after(() => db.destroy());
  await migrate(db, 'sqlite');
  await makeAccounts(db, ['acct_a', 'acct_b', 'acct_c', 'acct_d'], []);
  const rows = await signedUsage(db);
  await everyChangeIsNamed(db, rows, unlock);
  const some = rows.filter((_, index) => index < 6 || index % 700 === 0);
  await proofsHold(db, some, 2);
  const [first] = rows as [UsageRow];
  await lateRequestsAreSigned(db);
  await proofsHold(db, [first, rows.at(-1)!], 0);
  await assert.rejects(db.deleteFrom('usage_head').execute(), /immutable/);
  await keysRotate(db, 14);
  const late = (await differencesIn(db)).length;
  assert.equal(late, 1);
  await db.updateTable('account').set({ status: 'suspended' }).where('id', '=', 'acct_b').execute();
  assert.equal(await eraseAccount(db, { accountId: 'acct_b', at: completeAt(16), changeId: uuid() }), true);
  await addRequests(db, { accountId: 'acct_b', day: 17, count: 3 });
  await signUntil(db, completeAt(18));
  const pages = db.selectFrom('usage_leaves').select('day').where('account_id', '=', 'acct_b');
  assert.deepEqual(await pages.execute(), []);
  assert.equal((await differencesIn(db)).length, late);

  const keptSince = firstDay + 2 * dayMs;
  await db.updateTable('usage_retention').set({ kept_since: keptSince, removed_at: null }).execute();
  let after: RemovalCursor | undefined;
  for (let state = 'more'; state === 'more';)
    ({ state, next: after } = await removeUsage(db, { after, now: keptSince }));
  const days = await db.selectFrom('usage_leaves').select('day').distinct().orderBy('day').execute();
  assert.equal(Number(days[0]!.day), firstDay + 3 * dayMs);
  assert.equal(await signedDays(db), 20);
  assert.equal((await differencesIn(db, keptSince)).length, late);
  assert.deepEqual(await proveUsage(db, first), { state: 'never' });
  await proofsHold(db, [rows.find(({ accountId }) => accountId === 'acct_c')!], 0);
});
