/** Budgets against a small model: what is free of each, and what of it is held or spent, whatever happens in whatever order. */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { budgetsOf, estimate, holdStepTokens } from '../../src/billing/bill.ts';
import type { Bill } from '../../src/billing/bill.ts';
import type { Hold } from '../../src/billing/hold.ts';
import { ApiError } from '../../src/platform/errors.ts';
import { balanceAt, budgetPeriods, memberSubject, modelSubject, readModelSubject } from '../../src/store/budget.ts';
import type { Budget, BudgetPeriod } from '../../src/store/budget.ts';
import { differencesOf } from '../store/fixture.ts';
import { costOf, used } from './bills.ts';
import { accountId, userId, openCounter, modelId, billOf, receiptOf } from './budget-ledger.ts';
import type { Counter, Subject } from './budget-ledger.ts';

const dayMs = 86_400_000;

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
