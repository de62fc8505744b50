/** Budgets over the real ledger against a small model: spent + held is never more than the budget (money.md, "Budgets"). */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { issueKey } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import { budgetsOf, estimate, holdStepTokens } from '../../src/billing/bill.ts';
import type { Bill } from '../../src/billing/bill.ts';
import { Billing, freeBalancesOf } from '../../src/billing/billing.ts';
import type { Hold } from '../../src/billing/hold.ts';
import { ApiError } from '../../src/platform/errors.ts';
import {
  balanceAt,
  budgetPeriods,
  chargedPeriods,
  memberSubject,
  modelSubject,
  readModelSubject,
} from '../../src/store/budget.ts';
import type { Budget, BudgetOwner, BudgetPeriod } from '../../src/store/budget.ts';
import type { SqliteStore } from '../../src/store/sqlite/store.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { customer, differencesOf, temporaryFolder, uuid } from '../store/fixture.ts';
import { bill, costOf, receipt, used } from './bills.ts';

const dayMs = 86_400_000;
const accountId = 'acct_a';
const userId = 'a'.repeat(32);
const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });

/** A process on the file: what is in its memory goes when it ends. */
class Counter {
  readonly file: string;
  store!: SqliteStore;
  billing!: Billing;

  constructor(file: string) {
    this.file = file;
  }

  async start(): Promise<void> {
    this.store = await openSqliteStore({
      file: this.file,
      onFatal: (error) => {
        throw error;
      },
      free: freeBalancesOf(() => this.billing),
    });
    this.billing = new Billing({
      ledger: this.store.ledger,
      newId: uuid,
      topupUrl: () => 'http://test/topup',
      log: () => assert.fail('nothing is repaired'),
    });
  }

  async newKey(userId: string | null = null): Promise<string> {
    const { row } = issueKey({ accountId, name: 'x', secret, now: 0 });
    await this.store.repositories.createKey({ key: { ...row, userId }, changeId: uuid() });
    return row.id;
  }

  async newMember(userId: string): Promise<void> {
    const { repositories } = this.store;
    const tokenHash = new Uint8Array(32).fill(7);
    const email = 'm@example.com';
    const invited = { id: `inv_${'0'.repeat(32)}`, email, role: 'developer' as const, invitedBy: '', createdAt: 0 };
    await repositories.createInvitation({ ...invited, expiresAt: 1e15, accountId, tokenHash });
    const person = { userId, credentialId: 'b'.repeat(32), name: 'M', passwordHash: 'x' };
    assert.ok(await repositories.joinAnew({ ...person, tokenHash, email, at: 1 }));
  }

  /** As the operation does it. */
  async setBudget(of: BudgetOwner, subject: string, budget: Budget | null, at: number): Promise<void> {
    const { repositories, ledger } = this.store;
    const spent = budget === null ? 0n : await repositories.spentBesideBudget({ of, subject, per: budget.per, at });
    await ledger.setBudget({
      kind: `${of}_budget`,
      subject,
      budget,
      spentBeforeMicrocents: spent!,
      at,
      changeId: uuid(),
    });
  }
}

async function openCounter(t: TestContext, credit: bigint): Promise<Counter> {
  const counter = new Counter(join(temporaryFolder(t), 'ledger.db'));
  await counter.start();
  t.after(() => counter.store.close());
  await customer(counter.store, accountId, credit);
  return counter;
}

interface Subject {
  readonly of: BudgetOwner;
  readonly id: string;
  /** Of a key: the member it belongs to. */
  readonly member?: Subject | undefined;
  /** Of a key or an account: its part for one model. */
  readonly ofModel?: Subject | undefined;
  budget: Budget | undefined;
}

const modelId = 'Org/Model:8b';
const byModel = ({ ofModel }: Subject): ReadonlyMap<string, Budget> | undefined =>
  ofModel?.budget === undefined ? undefined : new Map([[modelId.toLowerCase(), ofModel.budget]]);

const billOf = (
  key: Subject,
  account: Subject,
  startedAt: number,
  promptTokens: number,
  completionTokensMax: number,
  model = 'model',
) =>
  bill(accountId, promptTokens, completionTokensMax, {
    // As they are now: a request keeps the budgets that it began with.
    key: {
      id: key.id,
      budget: key.budget,
      modelBudgets: byModel(key),
      member: key.member?.budget === undefined ? undefined : { id: key.member.id, budget: key.member.budget },
    },
    account: { id: accountId, budget: account.budget, modelBudgets: byModel(account) },
    model: { id: model },
    startedAt,
  });

function receiptOf(
  made: Bill,
  promptTokens: number,
  completionTokens: number,
  ending: 'finished' | 'failed' | 'credit',
) {
  const ofOwner = (of: BudgetOwner, isForModel = false) =>
    budgetsOf(made)?.find((one) => one.of === of && (one.modelId !== undefined) === isForModel);
  const perOf = (of: BudgetOwner) => chargedPeriods(ofOwner(of)?.budget.per, ofOwner(of, true)?.budget.per);
  const row = receipt(made, promptTokens, completionTokens, ending);
  const { key, startedAt } = made;
  const memberBudget = ofOwner('member')?.balance.id ?? null;
  const budgets = { keyBudget: perOf('key'), accountBudget: perOf('account'), memberBudget };
  return { ...row, keyId: key.id, modelId: made.model.id, startedAt, endedAt: startedAt, ...budgets };
}

const refusalOf = async (promise: Promise<unknown>): Promise<ApiError> => {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error;
  }
  return assert.fail('was not refused');
};

// --- the property

interface ActiveRequests {
  made: Bill;
  readonly hold: Hold;
  readonly promptTokens: number;
  completionTokens: number;
}

/** What a budget has for a period. */
interface ModelBalance {
  amount: bigint;
  readonly endsAt: number | null;
}

class Model {
  readonly subjects: readonly Subject[];
  readonly balances = new Map<string, ModelBalance>();
  /** What was charged, and the balances that it was charged to. */
  readonly rows: { readonly made: Bill; readonly cost: bigint }[] = [];
  /** Of each balance, what had been charged beside it when its budget was set. */
  readonly before = new Map<string, bigint>();
  running: ActiveRequests[] = [];
  credit: bigint;
  now: number;

  constructor(subjects: readonly Subject[], credit: bigint, now: number) {
    this.subjects = subjects;
    this.credit = credit;
    this.now = now;
  }

  idsOf = (made: Bill): readonly string[] => (budgetsOf(made) ?? []).map(({ balance }) => balance.id);

  isMembersKey = (subject: Subject, keyId: string): boolean =>
    this.subjects.some(({ id, member }) => id === keyId && member === subject);

  free(balanceId: string): bigint {
    const spent = this.rows
      .filter(({ made }) => this.idsOf(made).includes(balanceId))
      .reduce((sum, { cost }) => sum + cost, this.before.get(balanceId) ?? 0n);
    return this.balances.get(balanceId)!.amount - spent - this.held((made) => this.idsOf(made).includes(balanceId));
  }

  freeCredit = (): bigint => this.credit - this.held(() => true);

  held(of: (made: Bill) => boolean): bigint {
    return this.running.filter(({ made }) => of(made)).reduce((sum, { hold }) => sum + hold.heldMicrocents, 0n);
  }

  /** What the bill can be held for: as much as the one that pays least. */
  least(made: Bill): bigint {
    for (const { balance, budget } of budgetsOf(made) ?? [])
      if (!this.balances.has(balance.id))
        this.balances.set(balance.id, { amount: budget.amountMicrocents, endsAt: balance.endsAt });
    return [this.freeCredit(), ...this.idsOf(made).map((id) => this.free(id))].reduce((a, b) => (a < b ? a : b));
  }

  /** Whether the hold can be one of another model: its own budgets pay for all of it, the others for what is more. */
  mayRebind({ made, hold }: ActiveRequests, to: Bill): boolean {
    this.least(to);
    const held = hold.heldMicrocents;
    const { amount } = estimate(to, to.promptTokensMax);
    const missing = amount > held ? amount - held : 0n;
    const before = new Set(this.idsOf(made));
    return (
      this.freeCredit() >= missing &&
      this.idsOf(to).every((id) => {
        const more = before.has(id) ? missing : held + missing;
        return this.free(id) >= more || more === 0n;
      })
    );
  }

  setBudget(subject: Subject, budget: Budget | undefined): void {
    subject.budget = budget;
    if (budget === undefined) return;
    const { id, endsAt, startsAt } = balanceAt(subject.id, budget.per, this.now);
    this.balances.set(id, { amount: budget.amountMicrocents, endsAt });
    for (const [other, balance] of this.balances)
      if (other.startsWith(`${subject.id}:${budget.per}`) && (balance.endsAt === null || balance.endsAt > this.now))
        balance.amount = budget.amountMicrocents;
    const of = readModelSubject(subject.id);
    const isBeside = ({ made }: { readonly made: Bill }): boolean =>
      (of === undefined || made.model.id.toLowerCase() === of.modelId) &&
      (subject.of === 'account' ||
        made.key.id === (of?.ownerId ?? subject.id) ||
        this.isMembersKey(subject, made.key.id)) &&
      made.startedAt >= startsAt &&
      (endsAt === null || made.startedAt < endsAt) &&
      !this.idsOf(made).includes(id);
    this.before.set(
      id,
      this.rows.filter(isBeside).reduce((sum, { cost }) => sum + cost, 0n),
    );
  }
}

const amount = fc.oneof(
  fc.integer({ min: 0, max: 60_000 }),
  fc.constantFrom(costOf(100, 10), costOf(100, 10) * 3n).map(Number),
);
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('hold' as const),
      key: fc.nat(2),
      model: fc.constantFrom(modelId, 'model'),
      promptTokens: fc.nat(2_000),
      completionTokensMax: fc.integer({ min: 1, max: 6_000 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('rebind' as const), hold: fc.nat() }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('cover' as const), hold: fc.nat(), tokens: fc.nat(3_000) }) },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('end' as const),
      hold: fc.nat(),
      tokens: fc.nat(200),
      ending: fc.constantFrom('finished' as const, 'finished' as const, 'credit' as const, 'failed' as const),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('budget' as const),
      subject: fc.nat(6),
      budget: fc.option(fc.record({ amount, per: fc.constantFrom<BudgetPeriod>(...budgetPeriods) }), { freq: 4 }),
    }),
  },
  // An hour, or up to forty days: over the ends of days, weeks, months and a leap year's February.
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      ms: fc.oneof(fc.nat(dayMs / 24), fc.nat(8 * dayMs), fc.nat(40 * dayMs)),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

async function take(counter: Counter, model: Model, step: Step): Promise<void> {
  const [one, two, account, , ofNobody] = model.subjects as [Subject, Subject, Subject, Subject, Subject];
  const picked = (hold: number): ActiveRequests | undefined => model.running[hold % Math.max(model.running.length, 1)];
  switch (step.do) {
    case 'hold': {
      const { promptTokens, completionTokensMax } = step;
      const key = [one, two, ofNobody][step.key]!;
      const made = billOf(key, account, model.now, promptTokens, completionTokensMax, step.model);
      const need = costOf(promptTokens, Math.min(completionTokensMax, holdStepTokens));
      const least = model.least(made);
      try {
        const hold = await counter.billing.hold(made);
        assert.ok(least >= need, `${need} was held of ${least}`);
        model.running.push({ made, hold, promptTokens, completionTokens: 0 });
      } catch (error) {
        assert.ok(error instanceof ApiError && error.code === 'insufficient_credits', String(error));
        assert.ok(least < need, `${need} was refused of ${least}`);
      }
      return;
    }
    case 'rebind': {
      const running = picked(step.hold);
      if (running === undefined) return;
      const to = { ...running.made, model: { id: running.made.model.id === modelId ? 'model' : modelId } };
      const before = running.hold.heldMicrocents;
      const may = model.mayRebind(running, to);
      if (await running.hold.rebind(to)) {
        assert.ok(may, 'the budgets of the other model cover it');
        running.made = to;
      } else assert.ok(!may, 'the budgets of the other model do not cover it');
      assert.ok(running.hold.heldMicrocents >= before);
      // As when another model begins anew.
      if (running.made === to) running.completionTokens = 0;
      return;
    }
    case 'cover': {
      const running = picked(step.hold);
      if (running === undefined) return;
      running.completionTokens += step.tokens;
      const least = model.least(running.made);
      const most = running.hold.heldMicrocents + (least > 0n ? least : 0n);
      const isCovered = await running.hold.cover(used(running.promptTokens, running.completionTokens));
      assert.equal(isCovered, costOf(running.promptTokens, running.completionTokens) <= most);
      return;
    }
    case 'end': {
      const running = picked(step.hold);
      if (running === undefined) return;
      const { made, hold, promptTokens } = running;
      const tokens = running.completionTokens + step.tokens;
      const price = step.ending === 'failed' ? 0n : costOf(promptTokens, tokens);
      const cost = price < hold.heldMicrocents ? price : hold.heldMicrocents;
      const row = receiptOf(made, promptTokens, tokens, step.ending);
      if (step.ending === 'finished') await hold.settle(row);
      await hold.close(row);
      model.running = model.running.filter((other) => other !== running);
      model.rows.push({ made, cost });
      model.credit -= cost;
      return;
    }
    case 'budget': {
      const subject = model.subjects[step.subject]!;
      const budget =
        step.budget === null ? undefined : { amountMicrocents: BigInt(step.budget.amount), per: step.budget.per };
      await counter.setBudget(subject.of, subject.id, budget ?? null, model.now);
      model.setBudget(subject, budget);
      return;
    }
    case 'wait':
      model.now += step.ms;
      return;
    case 'restart':
      await counter.store.close();
      await counter.start();
      model.running = [];
  }
}

/** At rest: what is free in memory and what is known in the database are what the model says. */
async function check(counter: Counter, model: Model): Promise<void> {
  for (const id of model.balances.keys()) {
    const free = counter.billing.freeMicrocents(id);
    if (free !== undefined && free !== 0n) assert.equal(free, model.free(id), id);
  }
  const subjects = model.subjects.map(({ id }) => id);
  for (const status of await counter.store.repositories.budgetsOf({ subjects, at: model.now })) {
    const { balance, spentMicrocents, amountMicrocents } = status;
    if (!model.balances.has(balance.id)) assert.equal(spentMicrocents, 0n);
    else {
      const held = model.held((made) => model.idsOf(made).includes(balance.id));
      assert.equal(amountMicrocents - spentMicrocents - held, model.free(balance.id), balance.id);
    }
  }
}

test('any mix of holds, extensions, endings, budgets, periods and restarts agrees with the model', async (t) => {
  const credit = 10_000_000n;
  const seen = { held: 0, refused: 0 };
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 1, maxLength: 60, size: 'max' }),
      fc.nat(dayMs),
      async (steps, offset) => {
        const counter = await openCounter(t, credit);
        await counter.newMember(userId);
        const member: Subject = { of: 'member', id: memberSubject(accountId, userId), budget: undefined };
        const keyId = await counter.newKey(userId);
        const keyModel: Subject = { of: 'key', id: modelSubject(keyId, modelId), budget: undefined };
        const accountModel: Subject = { of: 'account', id: modelSubject(accountId, modelId), budget: undefined };
        const subjects: Subject[] = [
          { of: 'key', id: keyId, budget: undefined, member, ofModel: keyModel },
          { of: 'key', id: await counter.newKey(userId), budget: undefined, member },
          { of: 'account', id: accountId, budget: undefined, ofModel: accountModel },
          member,
          { of: 'key', id: await counter.newKey(), budget: undefined },
          keyModel,
          accountModel,
        ];
        const model = new Model(subjects, credit, Date.UTC(2028, 1, 27) + offset);
        for (const step of steps) {
          const before = model.running.length;
          await take(counter, model, step);
          if (step.do === 'hold') seen[model.running.length > before ? 'held' : 'refused']++;
          await check(counter, model);
        }
        assert.deepEqual(await differencesOf(counter.file), []);
        while (model.running.length > 0)
          await take(counter, model, { do: 'end', hold: 0, tokens: 0, ending: 'failed' });
        await check(counter, model);
        assert.equal(counter.billing.openHolds, 0);
        await counter.store.close();
      },
    ),
    { numRuns: 30 },
  );
  t.diagnostic(JSON.stringify(seen));
  assert.ok(seen.held > 30 && seen.refused > 10);
});

// --- by example

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
