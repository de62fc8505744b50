/** What the ledger shows, automatic top-ups and promotional credit promise, on whichever store. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { serviceItself } from '../../../src/accounts/actor.ts';
import { operate } from '../../../src/accounts/operations.ts';
import { AutoTopups, failuresMax, retryAfterMs } from '../../../src/billing/payments/auto-topup.ts';
import { demoMethods } from '../../../src/billing/payments/demo.ts';
import { closePromotions, closingGraceMs } from '../../../src/billing/payments/promotions.ts';
import { systemAccounts } from '../../../src/store/ledger.ts';
import { startOfDay } from '../../../src/platform/calendar/time-zone.ts';
import type { LedgerCursor, LedgerEntry } from '../../../src/store/repositories/credit.ts';
import { createLog } from '../../../src/platform/log.ts';
import type { Mail } from '../../../src/notifications/mail/mailer.ts';
import { Notices } from '../../../src/billing/notices/notices.ts';
import { WebhookEvents } from '../../../src/notifications/webhooks/events.ts';
import { uuidMaker } from '../../../src/platform/ids/uuid.ts';
import { mulberry32 } from '../../support/random.ts';
import { grant, usage, uuid } from '../../store/fixture.ts';
import { receiptsOn } from '../invoices/receipts-on.ts';
import { event, input, newCustomer, openTill, say, session, type OpenLedger } from './claims.ts';

const cent = 1_000_000n;
const dayMs = 86_400_000;

/** A finished request of this many cents that ended at a time. */
async function spend(opened: OpenLedger, accountId: string, cents: bigint, endedAt: number): Promise<void> {
  await opened.hold(accountId, cents * cent);
  await opened.store.ledger.settle(
    usage(accountId, cents * cent, {
      // Its key has the time that its row has: months are found by it.
      requestId: uuidMaker(() => endedAt)(),
      promptTokens: Number(cents * cent),
      startedAt: endedAt - 5,
      endedAt,
    }),
  );
}

const balanceOf = async ({ store }: OpenLedger, accountId: string): Promise<bigint> =>
  (await store.repositories.getAccount({ accountId }))!.balanceMicrocents;

const cursorOf = (entry: LedgerEntry): LedgerCursor =>
  'from' in entry ? { usageFrom: entry.from } : { transferId: entry.id };

export function moreClaims(open: (t: TestContext) => Promise<OpenLedger>): void {
  test('the ledger: every balance after is the sum of what is below it, in pages of any size, of any kind', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    const seed = Date.now() % 2 ** 32;
    t.diagnostic(`seed ${seed}`);
    const random = mulberry32(seed);
    const accountId = await newCustomer(opened);
    const start = Math.floor(Date.now() / dayMs) * dayMs - 3 * dayMs;
    await ledger.transfer({ ...grant(accountId, 1000n * cent), at: start });
    let at = start;
    let transfers = 1;
    let cost = 0n;
    // Long before, so that there are many days between without any charge.
    for (const days of [14, 3, 2, 1]) {
      await spend(opened, accountId, 1n, start - days * 100 * dayMs + 7_000_000);
      cost += cent;
    }
    while (at < start + 3 * dayMs - 4 * 3_600_000) {
      // Movements and charges in the same millisecond, too.
      at += random() < 0.3 ? 0 : Math.floor(random() * 4 * 3_600_000);
      if (random() < 0.4) {
        await ledger.transfer({ ...grant(accountId, BigInt(1 + Math.floor(random() * 9)) * cent), at });
        transfers++;
      } else {
        await spend(opened, accountId, 1n, at);
        cost += cent;
      }
    }
    const addDays = async (): Promise<void> => {
      while ((await repositories.recomputeUsageDays({})).isMore);
    };
    const zone = async (timeZone: string): Promise<void> => {
      await repositories.editAccount({ accountId, timeZone, at: Date.now(), changeId: uuid() });
    };
    const stages: readonly (readonly [zone: string, prepare: () => Promise<unknown>])[] = [
      ['UTC', () => Promise.resolve()],
      ['UTC', () => repositories.recomputeUsageHours({ now: Date.now() })],
      ['UTC', addDays],
      ['Asia/Kathmandu', () => zone('Asia/Kathmandu')],
      ['Asia/Kathmandu', addDays],
    ];
    for (const [timeZone, prepare] of stages) {
      await prepare();
      const now = Date.now();
      const all = (await repositories.listLedger({ accountId, limit: 1000, now }))!;
      const moved = all.flatMap((entry) => ('from' in entry ? [] : [entry.at]));
      for (const entry of all)
        if ('from' in entry) {
          assert.ok(startOfDay(timeZone, entry.from) === entry.from || moved.includes(entry.from), timeZone);
          assert.equal(startOfDay(timeZone, entry.to - 1), startOfDay(timeZone, entry.from));
        }
      assert.equal(all[0]!.balanceAfterMicrocents, await balanceOf(opened, accountId));
      assert.equal(all.filter(({ kind }) => kind === 'grant').length, transfers);
      let below = 0n;
      for (const entry of all.toReversed()) {
        below += entry.microcents;
        assert.equal(entry.balanceAfterMicrocents, below);
        assert.notEqual(entry.microcents, 0n);
      }
      const used = all.filter((entry) => 'from' in entry).reduce((sum, entry) => sum - entry.microcents, 0n);
      assert.equal(used, cost);
      for (const size of [1, 2, 7]) {
        const paged: LedgerEntry[] = [];
        for (;;) {
          const last = paged.at(-1);
          const page = (await repositories.listLedger({
            accountId,
            limit: size,
            now,
            ...(last === undefined ? {} : { after: cursorOf(last) }),
          }))!;
          paged.push(...page);
          if (page.length < size) break;
        }
        assert.deepEqual(paged, all, `pages of ${size}`);
      }
      for (const kind of ['grant', 'usage'] as const) {
        const only = (await repositories.listLedger({ accountId, limit: 1000, now, kind }))!;
        assert.deepEqual(
          only,
          all.filter((entry) => entry.kind === kind),
        );
      }
      const credit = (await repositories.creditSummary({ accountId, now }))!;
      assert.equal(credit.spentMicrocents, cost);
      assert.equal(credit.creditedMicrocents - credit.spentMicrocents, credit.balanceMicrocents);
    }
    const stranger = await newCustomer(opened);
    const [newest] = (await repositories.listLedger({ accountId, limit: 1, now: Date.now(), kind: 'grant' }))!;
    assert.equal(
      await repositories.listLedger({ accountId: stranger, limit: 5, now: Date.now(), after: cursorOf(newest!) }),
      undefined,
    );
  });

  test('automatic top-up charges once per trigger, also from two processes at once, and up to its ceiling', async (t) => {
    const opened = await open(t);
    const { repositories } = opened.store;
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const mails: Mail[] = [];
    const at = { ms: Date.now() };
    const make = () =>
      new AutoTopups({
        repositories,
        payments: till.payments,
        mailer: { send: (mail) => Promise.resolve(void mails.push(mail)) },
        now: () => at.ms,
        newId: uuid,
        accountUrl: () => 'http://localhost:1',
        log: () => {},
      });
    const both = [make(), make()];
    const run = () => Promise.all(both.map((one) => one.run(AbortSignal.timeout(60_000))));
    const set = (monthly: bigint) =>
      repositories.setAutoTopup({
        accountId,
        enabled: true,
        thresholdMicrocents: 100n * cent,
        amountMicrocents: 500n * cent,
        monthlyCapMicrocents: monthly * cent,
        by: 'test',
        at: at.ms,
      });
    await set(1200n);
    const method = (methodId: string) =>
      repositories.savePaymentMethod({ accountId, provider: 'demo', customerId: 'cus', methodId, savedAt: at.ms });
    await method(demoMethods.good);
    for (let round = 0; round < 3; round++) await run();
    assert.equal(await balanceOf(opened, accountId), 500n * cent);
    await spend(opened, accountId, 450n, Date.now());
    for (let round = 0; round < 3; round++) await run();
    assert.equal(await balanceOf(opened, accountId), 550n * cent);
    await spend(opened, accountId, 500n, Date.now());
    for (let round = 0; round < 3; round++) await run();
    assert.equal(await balanceOf(opened, accountId), 50n * cent, 'a third charge would pass the ceiling');
    const topups = await repositories.listTopups({ accountId, limit: 100 });
    assert.deepEqual(
      topups.map(({ status, origin }) => [status, origin]),
      [
        ['paid', 'auto'],
        ['paid', 'auto'],
      ],
    );

    // A charge that was made, and whose maker was killed before it heard of it, is the same charge at the next look.
    await set(5000n);
    till.isCut = true;
    await run();
    assert.equal(await balanceOf(opened, accountId), 50n * cent);
    for (let round = 0; round < 3; round++) await run();
    till.isCut = false;
    assert.equal(await till.payments.catchUp(AbortSignal.timeout(60_000)), 1);
    for (let round = 0; round < 2; round++) await run();
    assert.equal(await balanceOf(opened, accountId), 550n * cent);
    assert.equal((await repositories.getAutoTopup({ accountId }))!.pendingTopup, null);

    // A process that listed the account before that charge was credited begins no other.
    const late = { accountId, topupId: 'top_late', provider: 'demo', monthFrom: 0, at: at.ms };
    assert.deepEqual(await repositories.claimAutoTopup(late), { kind: 'none' });

    await spend(opened, accountId, 500n, Date.now());
    await repositories.addWebhookEndpoint({
      id: 'whk_failed',
      accountId,
      url: 'http://localhost:1/told',
      description: '',
      events: ['auto_topup.failed'],
      at: at.ms,
      max: 1,
    });
    const notices = new Notices({
      repositories,
      mailer: { send: (mail) => Promise.resolve(void mails.push(mail)) },
      events: new WebhookEvents({ repositories, newId: uuid, now: () => at.ms, woken: () => {} }),
      print: () => Promise.reject(new Error('no invoice is meant')),
      accountUrl: () => 'http://localhost:1',
      now: () => at.ms,
      log: createLog({ write: () => true, once: () => {} }),
    });
    const reported = async () => {
      await notices.notify();
      return await repositories.listDeliveries({ accountId, endpointId: 'whk_failed', limit: 10 });
    };
    await method(demoMethods.declined);
    for (let failure = 1; failure <= failuresMax; failure++) {
      await run();
      await run();
      assert.equal(
        (await repositories.getAutoTopup({ accountId }))!.failures,
        failure,
        'and not again before its pause is over',
      );
      assert.equal((await reported()).length, failure === failuresMax ? 1 : 0, `after failure ${failure}`);
      at.ms += retryAfterMs + 1;
    }
    const stopped = (await repositories.getAutoTopup({ accountId }))!;
    assert.notEqual(stopped.stoppedAt, null);
    await run();
    const [event, ...more] = await reported();
    assert.equal(more.length, 0, 'it has stopped once');
    const [failed] = await repositories.listTopups({ accountId, limit: 1 });
    assert.deepEqual(
      [event!.type, event!.eventId, failed!.status],
      ['auto_topup.failed', `evt_${failed!.id}`, 'failed'],
    );
    await method(demoMethods.good);
    await run();
    assert.equal(await balanceOf(opened, accountId), 50n * cent, 'it stays stopped');
    await set(5000n);
    await run();
    assert.equal(await balanceOf(opened, accountId), 550n * cent, 'until it is set anew');
    assert.deepEqual(await opened.differences(), []);
  });

  test('promotional credit is spent first, the soonest end first, and what is left at its end is taken back once', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    const accountId = await newCustomer(opened);
    const now = Date.now();
    const start = now - 10 * dayMs;
    const give = async (cents: bigint, grantedAt: number, expiresAt: number) => {
      const transfer = { ...grant(accountId, cents * cent), at: grantedAt };
      await ledger.transfer({
        ...transfer,
        recording: [{ name: 'promotion', values: [transfer.id, accountId, cents * cent, grantedAt, expiresAt] }],
      });
      return transfer.id;
    };
    await ledger.transfer({ ...grant(accountId, 1000n * cent), at: start });
    const late = await give(100n, start, start + 8 * dayMs);
    const soon = await give(50n, start + dayMs, start + 4 * dayMs);
    const idle = await give(30n, start + 9 * dayMs, now + 9 * dayMs);
    await spend(opened, accountId, 10n, start + 1000); // of `late`
    await spend(opened, accountId, 30n, start + 2 * dayMs); // of `soon`
    await spend(opened, accountId, 25n, start + 5 * dayMs); // of `late`, `soon` has ended
    await spend(opened, accountId, 40n, start + 8 * dayMs); // of nothing: both have ended
    const unused = (transferId: Uint8Array) => repositories.promotionUnused({ accountId, transferId });
    assert.equal(await unused(soon), 20n * cent);
    assert.equal(await unused(late), 65n * cent);
    assert.equal(await unused(idle), 30n * cent);
    assert.deepEqual(
      (await repositories.listPromotions({ accountId })).map(({ leftMicrocents }) => leftMicrocents),
      [20n * cent, 65n * cent, 30n * cent],
    );
    const close = () => closePromotions({ ledger, repositories, now: () => now, newId: uuid });
    const before = await balanceOf(opened, accountId);
    await Promise.all([close(), close()]);
    await close();
    assert.equal(await balanceOf(opened, accountId), before - 85n * cent);
    const closed = (await repositories.listPromotions({ accountId })).map(
      ({ closedAt, unusedMicrocents, takenMicrocents }) => [closedAt !== null, unusedMicrocents, takenMicrocents],
    );
    assert.deepEqual(closed, [
      [true, 20n * cent, 20n * cent],
      [true, 65n * cent, 65n * cent],
      [false, null, null],
    ]);
    assert.deepEqual(await opened.differences(), []);
  });

  test('what runs keeps what it holds: of promotional credit that ends only what is free is taken', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    const accountId = await newCustomer(opened);
    const now = Date.now();
    const transfer = { ...grant(accountId, 100n * cent), at: now - 2 * dayMs };
    const recording = [
      { name: 'promotion', values: [transfer.id, accountId, 100n * cent, transfer.at, now - dayMs] },
    ] as const;
    assert.equal(await ledger.transfer({ ...transfer, recording }), true);
    assert.equal(await ledger.transfer({ ...transfer, recording }), false, 'the same key grants once');
    await opened.hold(accountId, 100n * cent);
    await closePromotions({ ledger, repositories, now: () => now - dayMs + closingGraceMs / 2, newId: uuid });
    assert.equal(
      (await repositories.listPromotions({ accountId }))[0]!.closedAt,
      null,
      'not before what ended is recorded',
    );
    await closePromotions({ ledger, repositories, now: () => now, newId: uuid });
    const [closed] = await repositories.listPromotions({ accountId });
    assert.deepEqual([closed!.unusedMicrocents, closed!.takenMicrocents], [100n * cent, 0n]);
    assert.equal(await balanceOf(opened, accountId), 100n * cent);
    assert.deepEqual(await opened.differences(), []);
  });

  test('of a payment that is returned by hand, many times at once, no more is returned than was paid, each with its note', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    const accountId = await newCustomer(opened);
    const till = openTill(opened);
    for (const payment of ['pi_one', 'pi_two']) {
      const topup = await till.payments.createTopup(input(accountId));
      await say(till, event('checkout.session.completed', session(topup, payment)));
    }
    const receipts = receiptsOn(opened.store);
    await receipts.issueDue(AbortSignal.timeout(60_000));
    const [receipt] = await repositories.listReceipts({ accountId, limit: 1 });
    const actor = { ...serviceItself, kind: 'cli' };
    const services = { ledger, repositories, newId: uuid, now: () => opened.store.now(), actor } as never;
    const back = (key: number) =>
      operate(
        {
          kind: 'move_credit',
          movement: 'payback',
          accountId,
          microcents: String(200n * cent),
          receipt: receipt!.number,
          idempotencyKey: `${accountId} ${key}`,
        },
        services,
      );
    const outcomes = await Promise.allSettled([1, 2, 3, 4].map(back));
    assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 2);
    for (const [at, { status }] of outcomes.entries())
      if (status === 'fulfilled') assert.ok((await back(at + 1)).again);
      else await assert.rejects(back(at + 1), /\$1\.00 has not been returned yet/);
    await Promise.all([receipts, receiptsOn(opened.store)].map((all) => all.issueDue(AbortSignal.timeout(60_000))));
    const issued = await repositories.listReceipts({ accountId, limit: 10 });
    assert.deepEqual(
      issued
        .filter(({ kind }) => kind === 'credit_note')
        .map(({ corrects, totalMicrocents }) => [corrects, totalMicrocents]),
      [1, 2].map(() => [receipt!.id, 200n * cent]),
    );
    assert.equal(await balanceOf(opened, accountId), 600n * cent);
    assert.deepEqual(await opened.differences(), []);
  });

  test('credits grant with an end makes a promotion, once per key', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    const accountId = await newCustomer(opened);
    const services = { ledger, repositories, newId: uuid, now: () => opened.store.now() } as never;
    const input = {
      kind: 'move_credit',
      movement: 'grant',
      accountId,
      microcents: String(10n * cent),
      reference: undefined,
      idempotencyKey: `welcome ${accountId}`,
      expiresAfterMs: 30 * dayMs,
    } as const;
    for (const again of [false, true]) {
      const answer = await operate(input, services);
      assert.ok(answer.again === again);
    }
    const [promotion, ...others] = await repositories.listPromotions({ accountId });
    assert.deepEqual([promotion!.amountMicrocents, others.length], [10n * cent, 0]);
    assert.equal(promotion!.expiresAt - promotion!.grantedAt, 30 * dayMs);
    await assert.rejects(
      operate({ ...input, movement: 'topup', idempotencyKey: 'x' }, services),
      /only a grant can have an expiry/i,
    );
    assert.equal(await balanceOf(opened, accountId), 10n * cent);
    assert.ok((await balanceOf(opened, systemAccounts.promo)) < 0n);
  });
}
