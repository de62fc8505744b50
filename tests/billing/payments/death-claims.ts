/**
 * A process that dies at any of its calls of the store, before it is carried out or before its answer arrives, and another
 * one that does the same again: everything has happened once.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import type { Mail } from '../../../src/notifications/mail/mailer.ts';
import { AutoTopups } from '../../../src/billing/payments/auto-topup.ts';
import { demoMethods } from '../../../src/billing/payments/demo.ts';
import { closePromotions } from '../../../src/billing/payments/promotions.ts';
import { atEachCall } from '../../store/deaths.ts';
import { grant, usage, uuid } from '../../store/fixture.ts';
import { event, newCustomer, openTill, say, session, input, type OpenLedger } from './claims.ts';

const cent = 1_000_000n;
const dayMs = 86_400_000;

export function deathClaims(open: (t: TestContext) => Promise<OpenLedger>): void {
  test('a top-up, its payment, a refund and a dispute happen once, wherever the process dies', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    const deaths = await atEachCall(
      opened.store,
      async () => {
        const accountId = await newCustomer(opened);
        return {
          accountId,
          paymentId: `pi_${accountId}`,
          refundId: `re_${accountId}`,
          disputeId: `dp_${accountId}`,
          isSpent: false,
        };
      },
      async (store, scene) => {
        const till = openTill({ store });
        const topup = await till.payments.createTopup(input(scene.accountId, 500, 'key'));
        const object = session(topup, scene.paymentId);
        const at = (name: string) => ({ id: `evt_${name}_${scene.accountId}` });
        await say(
          till,
          event('payment_intent.succeeded', { ...object, id: scene.paymentId, amount_received: 500 }, at('intent')),
        );
        await say(till, event('checkout.session.completed', object, at('session')));
        if (!scene.isSpent) {
          scene.isSpent = true;
          await opened.hold(scene.accountId, 100n * cent);
          await ledger.settle(usage(scene.accountId, 100n * cent, { promptTokens: 100_000_000 }));
        }
        const returned = { payment_intent: scene.paymentId, currency: 'usd' };
        await say(
          till,
          event('refund.created', { ...returned, id: scene.refundId, amount: 200, status: 'succeeded' }, at('refund')),
        );
        await say(
          till,
          event('charge.dispute.created', { ...returned, id: scene.disputeId, amount: 300 }, at('dispute')),
        );
      },
      async ({ accountId, disputeId }, where) => {
        const [topup, ...others] = await repositories.listTopups({ accountId, limit: 10 });
        assert.equal(others.length, 0, where);
        assert.deepEqual([topup!.status, topup!.returnedMicrocents], ['disputed', 500n * cent], where);
        // 500 paid, 100 spent, 200 refunded: of 300 that the dispute takes there were 200.
        assert.equal(
          (await repositories.findPaymentReturn({ provider: 'demo', id: disputeId }))!.takenMicrocents,
          200n * cent,
          where,
        );
        assert.equal((await repositories.getAccount({ accountId }))!.balanceMicrocents, 0n, where);
      },
    );
    assert.ok(deaths > 15, `only ${deaths} calls`);
    assert.deepEqual(await opened.differences(), []);
  });

  test('a refund that fails and a dispute that is won give back once, wherever the process dies', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    for (const order of [
      ['refund.created', 'charge.dispute.created', 'refund.failed', 'charge.dispute.closed'],
      ['refund.failed', 'charge.dispute.closed', 'refund.created', 'charge.dispute.created'],
    ] as const) {
      const deaths = await atEachCall(
        opened.store,
        async () => {
          const accountId = await newCustomer(opened);
          const till = openTill(opened);
          const topup = await till.payments.createTopup(input(accountId));
          await say(till, event('checkout.session.completed', session(topup, `pi_${accountId}`)));
          // 100 of 500 are spent: what takes all of it takes a part from the operator.
          await opened.hold(accountId, 100n * cent);
          await ledger.settle(usage(accountId, 100n * cent, { promptTokens: 100_000_000 }));
          return { accountId };
        },
        async (store, { accountId }) => {
          const till = openTill({ store });
          for (const type of order) {
            const isRefund = type.startsWith('refund');
            const object = {
              id: `${isRefund ? 're' : 'dp'}_${accountId}`,
              payment_intent: `pi_${accountId}`,
              amount: isRefund ? 450 : 50,
              currency: 'usd',
              status: { 'refund.created': 'succeeded', 'refund.failed': 'failed', 'charge.dispute.closed': 'won' }[
                type as string
              ],
            };
            await say(till, event(type, object, { id: `evt_${type}_${accountId}` }));
          }
        },
        async ({ accountId }, where) => {
          const [topup] = await repositories.listTopups({ accountId, limit: 10 });
          assert.deepEqual([topup!.status, topup!.returnedMicrocents], ['paid', 0n], where);
          assert.equal((await repositories.getAccount({ accountId }))!.balanceMicrocents, 400n * cent, where);
          const reported = await repositories.listNotices({ after: '', limit: 10_000 });
          assert.equal(reported.filter((notice) => notice.accountId === accountId).length, 1, where);
        },
      );
      assert.ok(deaths > 12, `only ${deaths} calls`);
    }
    assert.deepEqual(await opened.differences(), []);
  });

  test('an automatic top-up charges once, wherever the process dies', async (t) => {
    const opened = await open(t);
    const { repositories } = opened.store;
    const deaths = await atEachCall(
      opened.store,
      async () => {
        const accountId = await newCustomer(opened);
        await repositories.setAutoTopup({
          accountId,
          enabled: true,
          thresholdMicrocents: 100n * cent,
          amountMicrocents: 500n * cent,
          monthlyCapMicrocents: 5000n * cent,
          by: 'test',
          at: Date.now(),
        });
        const methodId = demoMethods.good;
        await repositories.savePaymentMethod({ accountId, provider: 'demo', customerId: 'c', methodId, savedAt: 1 });
        return { accountId };
      },
      async (store) => {
        const till = openTill({ store });
        const mails: Mail[] = [];
        const auto = new AutoTopups({
          repositories: store.repositories,
          payments: till.payments,
          mailer: { send: (mail) => Promise.resolve(void mails.push(mail)) },
          now: () => store.now(),
          newId: uuid,
          accountUrl: () => '',
          log: () => {},
        });
        await auto.run(AbortSignal.timeout(60_000));
        // What its death kept from the webhook.
        if (store === opened.store) await till.payments.catchUp(AbortSignal.timeout(60_000));
      },
      async ({ accountId }, where) => {
        const topups = await repositories.listTopups({ accountId, limit: 10 });
        assert.deepEqual(
          topups.map(({ status }) => status),
          ['paid'],
          where,
        );
        assert.equal((await repositories.getAccount({ accountId }))!.balanceMicrocents, 500n * cent, where);
        assert.equal((await repositories.getAutoTopup({ accountId }))!.failures, 0, where);
      },
    );
    assert.ok(deaths > 8, `only ${deaths} calls`);
    assert.deepEqual(await opened.differences(), []);
  });

  test('promotional credit ends once, wherever the process dies', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    await atEachCall(
      opened.store,
      async () => {
        const accountId = await newCustomer(opened);
        const transfer = { ...grant(accountId, 100n * cent), at: Date.now() - 2 * dayMs };
        const values = [transfer.id, accountId, 100n * cent, transfer.at, Date.now() - dayMs];
        await ledger.transfer({ ...transfer, recording: [{ name: 'promotion', values }] });
        await ledger.transfer(grant(accountId, 7n * cent));
        return { accountId };
      },
      async (store) =>
        void (await closePromotions({
          ledger: store.ledger,
          repositories: store.repositories,
          now: () => Date.now(),
          newId: uuid,
        })),
      async ({ accountId }, where) =>
        assert.equal((await repositories.getAccount({ accountId }))!.balanceMicrocents, 7n * cent, where),
    );
    assert.deepEqual(await opened.differences(), []);
  });
}
