import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { balanceOf, customer, differencesOf, openStore, temporaryFolder } from '../store/fixture.ts';
import { compareMonth, monthAccount, monthOf, playMonth } from './month.ts';

const credit = 10n ** 14n;

test('a month comes to the same everywhere, to the microcent', async (t) => {
  const file = join(temporaryFolder(t), 'month.db');
  const store = await openStore(t, file);
  await customer(store, monthAccount, credit);
  const seed = Math.floor(Math.random() * 2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const month = monthOf(seed, 20_000);
  await playMonth(store.ledger, month);
  await compareMonth(store.desk, month);
  const cost = month.rows.reduce((sum, row) => sum + row.costMicrocents, 0n);
  const refunded = month.refunds.reduce((sum, { amount }) => sum + amount, 0n);
  assert.equal(await balanceOf(store, monthAccount), credit - cost + refunded);
  assert.deepEqual(await differencesOf(file), []);
});
