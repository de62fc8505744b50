/** Budgets over the real ledger against a small model: spent + held is never more than the budget (money.md, "Budgets"). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { budgetsOf, type Bill } from '../../src/billing/bill.ts';
import { balanceAt, modelSubject } from '../../src/store/budget.ts';
import type { Budget, BudgetPeriod } from '../../src/store/budget.ts';
import { differencesOf, uuid } from '../store/fixture.ts';
import { bill, costOf, used } from './bills.ts';
import { accountId, openCounter, modelId, userId, billOf, receiptOf, refusalOf } from './budget-ledger.ts';
import type { Subject } from './budget-ledger.ts';

const dayMs = 86_400_000;

const price = costOf(100, 10);
const per = (amountMicrocents: bigint, period: BudgetPeriod = 'month'): Budget => ({ amountMicrocents, per: period });

async function scene(t: TestContext) {
  const counter = await openCounter(t, price * 1_000n);
  const key: Subject = { of: 'key', id: await counter.newKey(), budget: undefined };
  const account: Subject = { of: 'account', id: accountId, budget: undefined };
  const at = Date.UTC(2028, 1, 29, 12);
  const give = async (subject: Subject, budget: Budget | undefined, now = at): Promise<void> => {
    await counter.setBudget(subject.of, subject.id, budget ?? null, now);
    subject.budget = budget;
  };
  const hold = async (now = at, from = key) => {
    const made = billOf(from, account, now, 100, 10);
    return { made, hold: await counter.billing.hold(made) };
  };
  return { counter, key, account, at, give, hold };
}

test('a hold takes from the budgets of the key and the account and from the credit, all or none', async (t) => {
  const { counter, key, account, at, give, hold } = await scene(t);
  await give(key, per(price * 3n));
  await give(account, per(price * 2n, 'day'));
  const free = () =>
    [balanceAt(key.id, 'month', at).id, balanceAt(accountId, 'day', at).id, accountId].map((id) =>
      counter.billing.freeMicrocents(id),
    );
  await hold();
  assert.deepEqual(free(), [price * 2n, price, price * 999n]);
  const second = await hold();
  const refusal = await refusalOf(hold());
  assert.match(
    refusal.message,
    /^The budget of this account, \$0\.0000054 a day, does not cover this request\. It renews at 2028-03-01T/,
  );
  assert.deepEqual(free(), [price, 0n, price * 998n], 'what lacks in one is taken from none');
  await second.hold.close(receiptOf(second.made, 0, 0, 'failed'));
  assert.deepEqual(free(), [price * 2n, price, price * 999n]);
  // Another key is kept to the budget of the account alone.
  const other: Subject = { of: 'key', id: await counter.newKey(), budget: undefined };
  await hold(at, other);
  assert.deepEqual(free(), [price * 2n, 0n, price * 998n]);
  await counter.setBudget('account', accountId, null, at);
  account.budget = undefined;
  await hold(at, other);
  assert.deepEqual(free(), [price * 2n, 0n, price * 997n], 'no limit from the next request on');
});

test('a budget for a model limits that model alone, and its 402 names the model', async (t) => {
  const { counter, key, account, at } = await scene(t);
  const ofModel: Subject = { of: 'key', id: modelSubject(key.id, modelId), budget: per(price * 2n) };
  await counter.setBudget('key', ofModel.id, ofModel.budget!, at);
  const limited = { ...key, ofModel };
  const hold = (model: string) => counter.billing.hold(billOf(limited, account, at, 100, 10, model));
  await hold(modelId.toUpperCase());
  await hold(modelId);
  const refusal = await refusalOf(hold(modelId));
  assert.match(
    refusal.message,
    /^The budget of this key for the model 'Org\/Model:8b', \$0\.0000054 a month, does not/,
  );
  assert.equal(refusal.extra['budget_of'], 'key');
  assert.equal(refusal.extra['budget_model'], modelId);
  await hold('model');
  assert.equal(counter.billing.freeMicrocents(balanceAt(ofModel.id, 'month', at).id), 0n);
  const [status] = await counter.store.repositories.modelBudgetsOf({ ownerIds: [key.id, accountId], at });
  assert.deepEqual([status!.ownerId, status!.modelId], [key.id, modelId.toLowerCase()]);
});

test('a 402 of a budget names it, what it lacks and when it renews', async (t) => {
  const { key, give, hold } = await scene(t);
  await give(key, per(price - 1n));
  const refusal = await refusalOf(hold());
  assert.equal(refusal.code, 'insufficient_credits');
  assert.deepEqual(refusal.extra, {
    credits_available_cents: 0,
    credits_required_cents_estimate: 1,
    topup_url: 'http://test/topup',
    budget_of: 'key',
    budget_period: 'month',
    budget_limit_cents: 0,
    budget_renews_at: '2028-03-01T00:00:00.000Z',
  });
  await give(key, per(0n, 'total'));
  const forGood = await refusalOf(hold());
  assert.match(forGood.message, /^The budget of this key, \$0\.00 in total, .* It does not renew\. Raise the budget/);
  assert.ok(!('budget_renews_at' in forGood.extra));
});

test('a request that runs over the end of a period is charged where it was held, and a new period has a new balance', async (t) => {
  const { counter, key, at, give, hold } = await scene(t);
  await give(key, per(price, 'day'));
  const late = at + dayMs / 2 - 1;
  const over = await hold(late);
  await refusalOf(hold(late));
  await hold(late + 1);
  await refusalOf(hold(late + 1));
  await over.hold.settle(receiptOf(over.made, 100, 10, 'finished'));
  const spent = async (now: number) =>
    (await counter.store.repositories.budgetsOf({ subjects: [key.id], at: now }))[0]!.spentMicrocents;
  assert.deepEqual([await spent(late), await spent(late + 1)], [price, 0n]);
  assert.deepEqual(await differencesOf(counter.file), []);
});

test('a budget that is used up in mid-answer ends it; one that is raised meanwhile carries it on', async (t) => {
  const { counter, key, account, at, give } = await scene(t);
  await give(key, per(costOf(10, 2_048)));
  const made = billOf(key, account, at, 10, 10_000);
  const hold = await counter.billing.hold(made);
  assert.equal(await hold.cover(used(10, 2_000)), true);
  assert.equal(await hold.cover(used(10, 2_049)), false);
  await give(key, per(costOf(10, 2_148)));
  assert.equal(await hold.cover(used(10, 2_148)), true);
  assert.equal(await hold.cover(used(10, 2_149)), false);
  await hold.settle(receiptOf(made, 10, 2_148, 'credit'));
  assert.equal(counter.billing.freeMicrocents(balanceAt(key.id, 'month', at).id), 0n);
  assert.deepEqual(await differencesOf(counter.file), []);
});

test('an extension takes as much as the smallest balance has, and gives the rest back to the others', async (t) => {
  const { counter, key, account, at, give } = await scene(t);
  await give(key, per(costOf(10, 9_000)));
  await give(account, per(costOf(10, 2_100), 'week'));
  const made = billOf(key, account, at, 10, 10_000);
  const hold = await counter.billing.hold(made);
  assert.equal(await hold.cover(used(10, 2_000)), true);
  assert.equal(hold.heldMicrocents, costOf(10, 2_100));
  const free = (): (bigint | undefined)[] =>
    [balanceAt(key.id, 'month', at).id, balanceAt(accountId, 'week', at).id, accountId].map((id) =>
      counter.billing.freeMicrocents(id),
    );
  assert.deepEqual(free(), [costOf(0, 6_900), 0n, price * 1_000n - costOf(10, 2_100)]);
  assert.equal(await hold.cover(used(10, 2_101)), false);
  assert.deepEqual(free(), [costOf(0, 6_900), 0n, price * 1_000n - costOf(10, 2_100)]);
  await hold.settle(receiptOf(made, 10, 2_100, 'credit'));
  assert.deepEqual(await differencesOf(counter.file), []);
});

/** A key with 100 tokens a month for each of two models, and what is free of both and of the credit. */
async function twoModels(t: TestContext) {
  const { counter, key, at, give } = await scene(t);
  const each = 100n;
  const modelBudgets = new Map<string, Budget>();
  for (const model of ['a', 'b']) {
    await give({ of: 'key', id: modelSubject(key.id, model), budget: undefined }, per(each));
    modelBudgets.set(model, per(each));
  }
  const first = billOf(key, { of: 'account', id: accountId, budget: undefined }, at, 0, 10, 'a');
  const made = (model: string, tokens: number): Bill => ({
    ...first,
    key: { id: key.id, modelBudgets },
    model: { id: model },
    completionTokensMax: tokens,
    // A microcent for each of its tokens.
    prices: { input: 0n, output: 1_000_000n, cacheRead: 0n },
  });
  const free = (): readonly bigint[] =>
    [balanceAt(modelSubject(key.id, 'a'), 'month', at).id, balanceAt(modelSubject(key.id, 'b'), 'month', at).id].map(
      (id) => counter.billing.freeMicrocents(id) ?? each,
    );
  const isFree = (ofA: number, ofB: number, held: number): void => {
    assert.deepEqual(free(), [BigInt(ofA), BigInt(ofB)]);
    assert.equal(counter.billing.freeMicrocents(accountId), price * 1_000n - BigInt(held));
    assert.equal(counter.billing.heldMicrocents, BigInt(held));
  };
  return { counter, made, isFree };
}

test('another model takes what is held from its own budget, and that of the first has it back', async (t) => {
  const { counter, made, isFree } = await twoModels(t);
  const hold = await counter.billing.hold(made('a', 10));
  isFree(90, 100, 10);
  const steps: readonly (readonly [string, number, boolean, number, number, number])[] = [
    ['b', 10, true, 100, 90, 10],
    ['a', 11, true, 89, 100, 11],
    ['b', 25, true, 100, 75, 25],
    ['a', 30, true, 70, 100, 30],
    // What is held is never less than before.
    ['b', 10, true, 100, 70, 30],
    // Without a budget, and from there to more than there is, and to all of it.
    ['c', 40, true, 100, 100, 40],
    ['a', 101, false, 100, 100, 40],
    ['a', 100, true, 0, 100, 100],
    ['b', 101, false, 0, 100, 100],
    ['c', 120, true, 100, 100, 120],
    ['b', 10, false, 100, 100, 120],
  ];
  for (const [model, tokens, isBound, ofA, ofB, held] of steps) {
    assert.equal(await hold.rebind(made(model, tokens)), isBound, `${model} ${tokens}`);
    isFree(ofA, ofB, held);
  }
  await hold.close(receiptOf(made('c', 120), 0, 0, 'failed'));
  isFree(100, 100, 0);
});

for (const tokens of [10, 20])
  test(`a hold that ends while the budget of another model is asked for ${tokens} tokens leaves nothing there`, async (t) => {
    const { counter, made, isFree } = await twoModels(t);
    const hold = await counter.billing.hold(made('a', 10));
    const changing = hold.rebind(made('b', tokens));
    await hold.close(receiptOf(made('a', 10), 0, 0, 'failed'));
    assert.equal(await changing, false);
    isFree(100, 100, 0);
    assert.equal(counter.billing.openHolds, 0);
  });

test('lowered below what is held: what runs goes on, nothing is let in, and what comes free does not change that', async (t) => {
  const { counter, key, at, give, hold } = await scene(t);
  await give(key, per(price * 4n));
  const running = [await hold(), await hold(), await hold()] as const;
  await give(key, per(price));
  assert.equal(counter.billing.freeMicrocents(balanceAt(key.id, 'month', at).id), price * -2n);
  await refusalOf(hold());
  assert.equal(await running[0].hold.cover(used(100, 10)), true, 'it was held before');
  await running[0].hold.settle(receiptOf(running[0].made, 100, 10, 'finished'));
  for (const one of running.slice(1)) {
    await refusalOf(hold());
    await one.hold.close(receiptOf(one.made, 0, 0, 'failed'));
  }
  await refusalOf(hold());
  await give(key, per(price * 2n));
  await hold();
  await refusalOf(hold());
  assert.deepEqual(await differencesOf(counter.file), []);
});

test('a budget finds spent what its period was charged before it was set, and so does one that takes the place of another', async (t) => {
  const { counter, key, at, give, hold } = await scene(t);
  const charge = async (now: number): Promise<void> => {
    const one = await hold(now);
    await one.hold.settle(receiptOf(one.made, 100, 10, 'finished'));
  };
  await charge(at - 40 * dayMs);
  await charge(at - 2 * dayMs);
  await charge(at);
  const spent = async () =>
    (await counter.store.repositories.budgetsOf({ subjects: [key.id], at }))[0]?.spentMicrocents;
  await give(key, per(price * 3n));
  assert.equal(await spent(), price * 2n);
  await charge(at);
  await refusalOf(hold());
  await give(key, per(price * 3n, 'day'));
  assert.equal(await spent(), price * 2n);
  await charge(at);
  await give(key, undefined);
  assert.equal(await spent(), undefined);
  await charge(at);
  await give(key, per(price * 9n, 'total'));
  assert.equal(await spent(), price * 6n);
  await give(key, per(price * 6n));
  assert.equal(await spent(), price * 5n);
  await hold();
  await refusalOf(hold());
  assert.deepEqual(await differencesOf(counter.file), []);
});

test('each budget alone is held from: of the key, its member and the account, for all models and for the one', () => {
  const budget = per(price);
  const ofModel = new Map([[modelId.toLowerCase(), budget]]);
  const plain = bill(accountId, 100, 10, { model: { id: modelId } });
  const { key, account } = plain;
  for (const [changes, of, model] of [
    [{ key: { ...key, budget } }, 'key', undefined],
    [{ key: { ...key, modelBudgets: ofModel } }, 'key', modelId],
    [{ key: { ...key, member: { id: userId, budget } } }, 'member', undefined],
    [{ account: { ...account, budget } }, 'account', undefined],
    [{ account: { ...account, modelBudgets: ofModel } }, 'account', modelId],
  ] as const) {
    const budgets = budgetsOf({ ...plain, ...changes });
    assert.deepEqual(
      budgets?.map((one) => [one.of, one.modelId, one.budget]),
      [[of, model, budget]],
    );
    assert.equal(budgetsOf({ ...plain, ...changes, plan: 'p' }), undefined);
  }
  assert.equal(budgetsOf(plain), undefined);
  assert.equal(budgetsOf({ ...plain, key: { ...key, modelBudgets: new Map([['other', budget]]) } }), undefined);
});

test('what a plan covers touches no budget', async (t) => {
  const { counter, key, account, at, give } = await scene(t);
  await give(key, per(0n));
  const made = { ...billOf(key, account, at, 100, 10), plan: 'flat' };
  const hold = await counter.billing.hold(made);
  assert.equal(await hold.cover(used(100, 5_000)), true);
  await hold.close(receiptOf(made, 100, 10, 'failed'));
  assert.equal(counter.billing.freeMicrocents(balanceAt(key.id, 'month', at).id), undefined);
});

test('balances of periods that are over go from memory when nothing is held of them', async (t) => {
  const { counter, key, at, give, hold } = await scene(t);
  await give(key, per(price * 2n, 'day'));
  const day = (days: number): string => balanceAt(key.id, 'day', at + days * dayMs).id;
  const lasting = await hold();
  const brief = await hold(at + dayMs);
  await brief.hold.close(receiptOf(brief.made, 0, 0, 'failed'));
  for (let days = 2; days < 10; days++) {
    const one = await hold(at + days * dayMs);
    await one.hold.close(receiptOf(one.made, 0, 0, 'failed'));
  }
  const known = Array.from({ length: 10 }, (_, days) => counter.billing.freeMicrocents(day(days)) !== undefined);
  assert.deepEqual(known, [true, ...Array.from({ length: 8 }, () => false), true], 'the first is still held of');
  // A clock that is set back finds what was there.
  await lasting.hold.settle(receiptOf(lasting.made, 100, 10, 'finished'));
  await hold(at + 3 * dayMs);
  await hold(at + 3 * dayMs);
  await refusalOf(hold(at + 3 * dayMs));
  await hold();
  await refusalOf(hold());
  assert.deepEqual(await differencesOf(counter.file), []);
});

test('who has a budget and who has none do not wait for each other: a key without one is held from the credit alone', async (t) => {
  const { counter, key, give, hold } = await scene(t);
  const other: Subject = { of: 'key', id: await counter.newKey(), budget: undefined };
  await give(key, per(price));
  const outcomes = await Promise.allSettled(
    Array.from({ length: 40 }, (_, index) => hold(undefined, index % 2 === 0 ? key : other)),
  );
  const held = outcomes.filter(({ status }) => status === 'fulfilled').length;
  assert.equal(held, 1 + 20);
});

test('a budget for a key or an account that is not there is refused', async (t) => {
  const { counter, at } = await scene(t);
  const repositories = counter.store.repositories;
  assert.equal(await repositories.spentBesideBudget({ of: 'key', subject: 'key_none', per: 'day', at }), undefined);
  for (const [kind, subject] of [
    ['key_budget', 'key_none'],
    ['account_budget', 'acct_none'],
    ['account_budget', 'house_cash'],
  ] as const)
    await assert.rejects(
      counter.store.ledger.setBudget({
        kind,
        subject,
        budget: per(1n),
        spentBeforeMicrocents: 0n,
        at,
        changeId: uuid(),
      }),
      /there is no (key|account)/,
    );
});
