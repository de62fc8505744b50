/** Payments on a real PostgreSQL: what tests/billing/payments proves on SQLite, by a replica that leases. */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import pg from 'pg';

import { clientConfig, type Run } from '../../../src/store/postgres/connection.ts';
import { move } from '../../../src/store/postgres/run-steps.ts';

import { creditOf } from '../../billing/payments/credit-of.ts';
import { event, openTill, paymentClaims, say, session, input, type OpenLedger } from '../../billing/payments/claims.ts';
import { returnClaims } from '../../billing/payments/return-claims.ts';
import { deathClaims } from '../../billing/payments/death-claims.ts';
import { moreClaims } from '../../billing/payments/more-claims.ts';
import { receiptsOn } from '../../billing/invoices/receipts-on.ts';
import { balanceOf, customer, differencesOf, hold, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const open = async (t: TestContext): Promise<OpenLedger> => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  return {
    store: replica.store,
    release: (accountId, microcents) => {
      replica.free.credit(accountId, microcents);
      replica.store.ledger.leases.freed(accountId);
    },
    differences: () => differencesOf(url),
    hold: async (accountId, microcents) => {
      if (!(await hold(replica, accountId, microcents))) throw new Error('there is not enough to be held');
    },
  };
};

paymentClaims(open);
moreClaims(open);
deathClaims(open);
returnClaims(open);

test('two replicas that hear of the same payments credit each once', async (t) => {
  const url = await server.databaseWithTables();
  const replicas = [await openReplica(t, url), await openReplica(t, url)];
  const tills = replicas.map(({ store }) => openTill({ store }));
  await customer(replicas[0]!.store, 'acct_a', 0n);
  for (let count = 0; count < 10; count++) {
    const topup = await tills[0]!.payments.createTopup(input('acct_a'));
    const object = session(topup, `pi_${count}`);
    const said = event('checkout.session.completed', object);
    const other = event('payment_intent.succeeded', { ...object, id: `pi_${count}`, amount_received: 500 });
    const refund = event('refund.created', {
      id: `re_${count}`,
      payment_intent: `pi_${count}`,
      amount: 100,
      currency: 'usd',
      status: 'succeeded',
    });
    const paid = await Promise.all(tills.flatMap((till) => [say(till, said), say(till, other)]));
    assert.equal(paid.filter((outcome) => outcome === 'applied').length, 1);
    await Promise.all(tills.flatMap((till) => [say(till, refund), say(till, { ...refund, id: `evt_also_${count}` })]));
  }
  assert.equal(await balanceOf(replicas[1]!.store, 'acct_a'), 4_000_000_000n);
  // Both issue what is due at the same time: one document for each payment and return, and no number is lost.
  const signal = AbortSignal.timeout(60_000);
  await Promise.all(
    replicas.flatMap(({ store }) => [receiptsOn(store), receiptsOn(store)]).map((all) => all.issueDue(signal)),
  );
  const issued = await replicas[0]!.store.repositories.listReceipts({ limit: 100 });
  const year = new Date().getUTCFullYear();
  assert.deepEqual(
    issued.map(({ number }) => number).toReversed(),
    Array.from({ length: 20 }, (_, index) => `TH-R${year}-${String(index + 1).padStart(6, '0')}`),
  );
  for (const kind of ['receipt', 'credit_note'])
    assert.equal(issued.filter((one) => one.kind === kind).length, 10, kind);
  assert.equal((await replicas[0]!.store.repositories.listNotices({ after: '', limit: 100 })).length, 20);
  await assert.rejects(server.sql(url, `update receipt set data = '{}'`), /receipt is immutable/);
  await assert.rejects(server.sql(url, 'truncate receipt'), /receipt is immutable/);
  assert.deepEqual(await differencesOf(url), []);
});

test('a connection that is cut before each statement of a credit in turn leaves nothing of it behind', async (t) => {
  const url = await server.databaseWithTables();
  const { store } = await openReplica(t, url);
  await customer(store, 'acct_a', 0n);
  const topup = await openTill({ store }).payments.createTopup(input('acct_a'));
  const credit = creditOf('acct_a', topup.id);
  for (let count = 1; ; count++) {
    const client = new pg.Client(clientConfig({ url }));
    client.on('error', () => {});
    await client.connect();
    let left = count;
    const run: Run = async (statement, values) => {
      if (--left === 0) {
        await server.sql(url, `select pg_terminate_backend(${(client as unknown as { processID: number }).processID})`);
        throw new Error('cut');
      }
      const result = await client.query({ ...statement, values: [...values] });
      return { rows: result.rows as never[], count: result.rowCount ?? 0 };
    };
    await run({ text: 'begin' }, []).catch(() => {});
    const isDone = await move(run, credit)
      .then(() => run({ text: 'commit' }, []))
      .then(
        () => true,
        () => false,
      );
    await client.end().catch(() => {});
    const state = [await balanceOf(store, 'acct_a'), (await store.repositories.getTopup({ id: topup.id }))!.status];
    if (left > 0) {
      assert.deepEqual([isDone, ...state], [true, 500_000_000n, 'paid']);
      assert.ok(count > 8, `only ${count} statements`);
      break;
    }
    assert.deepEqual([isDone, ...state], [false, 0n, 'pending'], `cut at statement ${count}`);
  }
  assert.equal(await store.ledger.transfer(credit), false);
  assert.deepEqual(await differencesOf(url), []);
});
