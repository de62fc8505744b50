/** What was recorded of payments against the movements of money: one changed row is found, wherever it is. */
import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { closeConnection, openConnection } from '../../../src/store/sqlite/connection.ts';
import { customer, differencesOf, openStore, temporaryFolder } from '../../store/fixture.ts';
import { payAndReturn } from './pay-and-return.ts';

async function consistentLedger(t: TestContext): Promise<string> {
  const file = join(temporaryFolder(t), 'right.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  await payAndReturn(store);
  await store.close();
  assert.deepEqual(await differencesOf(file, false), []);
  return file;
}

const ofPayment = (id: string): string => `transfer_id = (select transfer_id from payment where id = '${id}')`;

test('one row that is wrong is found: each payment has one credit, each refund one debit, each failed one both', async (t) => {
  const right = await consistentLedger(t);
  const cases: readonly [statement: string, what: readonly RegExp[]][] = [
    [`update payment set amount = amount + 1 where id = 'pi_held'`, [/^payment pi_held$/]],
    [
      `update payment set transfer_id = (select transfer_id from payment where id = 'pi_won') where id = 'pi_held'`,
      [/^transfer /],
    ],
    [`delete from payment where id = 'pi_held'`, [/^top-up top_/, /^transfer /]],
    [`update topup set status = 'pending' where payment_id = 'pi_held'`, [/^payment pi_held$/]],
    [`update topup set returned = returned + 1 where payment_id = 'pi_held'`, [/^top-up .*: returned$/]],
    [`update payment_return set taken = taken - 1 where id = 'return_refunded'`, [/^return return_refunded$/]],
    [
      `update payment_return set amount = amount + 1 where id = 'return_refunded'`,
      [/^receipt /, /^top-up .*: returned$/],
    ],
    [
      `update payment_return set undone_at = at where id = 'return_refunded'`,
      [/^return return_refunded: given back$/, /^top-up .*: returned$/],
    ],
    [
      `update payment_return set undone_at = null where id = 'return_failed'`,
      [/^return return_failed: given back$/, /^top-up .*: returned$/],
    ],
    [
      `update payment_return set undone_at = null where id = 'return_won'`,
      [/^return return_won: given back$/, /^top-up .*: returned$/],
    ],
    [`delete from payment_return where id = 'return_refunded'`, [/^receipt /, /^top-up .*: returned$/, /^transfer /]],
    [`delete from payment_return where id = 'return_failed'`, [/^receipt /, /^receipt /, /^transfer /, /^transfer /]],
    [
      `delete from transfer where idempotency_key = 'refund_failed:demo:return_failed'`,
      [/^balance$/, /^balance$/, /^return return_failed: given back$/],
    ],
    [
      `update receipt set total = total + 1 where ${ofPayment('pi_held')}`,
      [/^receipt TH-R\d{4}-\d{6}$/, /^receipt .*: total$/],
    ],
    [`update receipt set account_id = 'acct_b' where ${ofPayment('pi_held')}`, [/^receipt /, /^receipt .*: account$/]],
    [`update receipt set transfer_id = x'01' where ${ofPayment('pi_held')}`, [/^receipt /]],
    [
      `update receipt set total = total + 1 where return_id = 'return_failed' and kind = 'credit_note_reversal'`,
      [/^receipt /, /^receipt .*: total$/],
    ],
    [`update payment_return set taken = taken - 1 where id = 'by hand'`, [/^recorded return by hand$/]],
    [
      `update payment_return set account_id = 'acct_b' where id = 'by hand'`,
      [/^receipt /, /^recorded return by hand$/],
    ],
    [`delete from payment_return where id = 'by hand'`, [/^receipt /]],
    [`delete from transfer where idempotency_key = 'by hand'`, [/^balance$/, /^balance$/, /^recorded return by hand$/]],
    [`delete from receipt where sequence = 2`, [/^receipt .*: corrects$/, /^receipts of \d{4}$/]],
  ];
  for (const [index, [statement, expected]] of cases.entries()) {
    const file = `${right}.${index}`;
    copyFileSync(right, file);
    const connection = openConnection(file);
    connection.exec(`drop trigger transfer_no_delete; drop trigger receipt_no_update; drop trigger receipt_no_delete;
      pragma foreign_keys = off`);
    const { changes } = connection.prepare(statement).run();
    closeConnection(connection);
    assert.equal(Number(changes), 1, statement);
    const found = (await differencesOf(file, false)).map(({ what }) => what).toSorted();
    assert.equal(found.length, expected.length, `${statement}: ${found.join('; ')}`);
    for (const [place, words] of expected.entries()) assert.match(found[place]!, words, statement);
  }
});
