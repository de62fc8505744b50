import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { customer, openStore, temporaryFolder, usage } from './fixture.ts';

test('M7: usage and transfer refuse to be changed, deleted or replaced', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 10n);
  await store.ledger.settle(usage('acct_a', 1n));
  await store.close();
  const connection = openConnection(file);
  t.after(() => connection.close());
  for (const table of ['usage', 'transfer']) {
    for (const statement of [
      `update ${table} set account_id = 'x'`.replace('account_id', table === 'usage' ? 'account_id' : 'kind'),
      `delete from ${table}`,
      `insert or replace into ${table} select * from ${table}`,
    ]) {
      assert.throws(() => connection.exec(statement), new RegExp(`${table} is immutable`), statement);
    }
    assert.deepEqual({ ...(connection.prepare(`select count(*) as n from ${table}`).get() as object) }, { n: 1n });
  }
});

test('no account of a customer goes below its credit limit, no matter what writes', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 10n);
  await store.close();
  const connection = openConnection(file);
  t.after(() => connection.close());
  assert.throws(
    () => connection.exec(`update account set available = -1 where id = 'acct_a'`),
    /account_not_overdrawn/,
  );
  connection.exec(`update account set available = -1, credit_limit = 1 where id = 'acct_a'`);
});
