/** What was recorded of payments against the movements of money: one changed row is found, wherever it is. */
import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { serviceItself } from '../../../src/accounts/actor.ts';
import { moveCredit } from '../../../src/accounts/operations/credit.ts';
import { closeConnection, openConnection } from '../../../src/store/sqlite/connection.ts';
import { customer, differencesOf, openStore, temporaryFolder, uuid } from '../../store/fixture.ts';
import { receiptsOn } from '../invoices/receipts-on.ts';
import { event, openTill, say, session, input } from './claims.ts';

/** Four payments: one was returned by hand in part, one is refunded in part, one whose refund failed, one whose dispute was won. */
async function consistentLedger(t: TestContext): Promise<string> {
  const file = join(temporaryFolder(t), 'right.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  const till = openTill({ store });
  for (const name of ['held', 'refunded', 'failed', 'won']) {
    const topup = await till.payments.createTopup(input('acct_a', 500, name));
    await say(till, event('checkout.session.completed', session(topup, `pi_${name}`)));
  }
  const about = (name: string, status: string) => ({
    id: `return_${name}`,
    payment_intent: `pi_${name}`,
    amount: 200,
    currency: 'usd',
    status,
  });
  await say(till, event('refund.created', about('refunded', 'succeeded')));
  await say(till, event('refund.created', about('failed', 'succeeded')));
  const receipts = receiptsOn(store);
  await receipts.issueDue(AbortSignal.timeout(60_000));
  await say(till, event('refund.failed', about('failed', 'failed')));
  await say(till, event('charge.dispute.created', about('won', 'needs_response')));
  await say(till, event('charge.dispute.closed', about('won', 'won')));
  await receipts.issueDue(AbortSignal.timeout(60_000));
  const { id: heldId } = await till.payments.createTopup(input('acct_a', 500, 'held'));
  const issued = await store.repositories.listReceipts({ limit: 100 });
  const receipt = issued.find(({ kind, topupId }) => kind === 'receipt' && topupId === heldId)!.id;
  const { ledger, repositories } = store;
  await moveCredit(
    {
      movement: 'payback',
      accountId: 'acct_a',
      microcents: '200000000',
      idempotencyKey: 'by hand',
      reference: 'cash',
      receipt,
    },
    { ledger, repositories, newId: uuid, now: () => store.now(), actor: { ...serviceItself, kind: 'cli' } } as never,
  );
  await receipts.issueDue(AbortSignal.timeout(60_000));
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
    [`update receipt set total = total + 1 where ${ofPayment('pi_held')}`, [/^receipt TH-R\d{4}-\d{6}$/]],
    [`update receipt set account_id = 'acct_b' where ${ofPayment('pi_held')}`, [/^receipt /]],
    [`update receipt set transfer_id = x'01' where ${ofPayment('pi_held')}`, [/^receipt /]],
    [
      `update receipt set total = total + 1 where return_id = 'return_failed' and kind = 'credit_note_reversal'`,
      [/^receipt /],
    ],
    [`update payment_return set taken = taken - 1 where id = 'by hand'`, [/^recorded return by hand$/]],
    [
      `update payment_return set account_id = 'acct_b' where id = 'by hand'`,
      [/^receipt /, /^recorded return by hand$/],
    ],
    [`delete from payment_return where id = 'by hand'`, [/^receipt /]],
    [`delete from transfer where idempotency_key = 'by hand'`, [/^balance$/, /^balance$/, /^recorded return by hand$/]],
    [`delete from receipt where sequence = 2`, [/^receipts of \d{4}$/]],
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
