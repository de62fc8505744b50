/** Holds over the real ledger against a small model: what is free, held and spent is always what there is. */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { holdStepTokens } from '../../src/billing/bill.ts';
import { type Bill } from '../../src/billing/bill.ts';
import type { Hold } from '../../src/billing/hold.ts';
import { ApiError } from '../../src/platform/errors.ts';
import { balanceOf, chargeback, customer, differencesOf, grant } from '../store/fixture.ts';
import { bill, costOf, openCounter, receipt, used } from './bills.ts';
import type { Counter } from './bills.ts';

const accounts = 3;
const charged = ['finished', 'client_left', 'reader_stalled', 'revoked', 'credit'] as const;
const uncharged = ['failed', 'deadline', 'drained'] as const;

const account = fc.nat(accounts - 1);
const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('hold' as const),
      account,
      promptTokens: fc.nat(2_000),
      completionTokensMax: fc.integer({ min: 1, max: 6_000 }),
    }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('cover' as const), hold: fc.nat(), tokens: fc.nat(3_000) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('rebind' as const),
      hold: fc.nat(),
      promptTokens: fc.nat(2_000),
      completionTokensMax: fc.integer({ min: 1, max: 6_000 }),
      inputPrice: fc.nat(9),
      outputPrice: fc.nat(9),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('settle' as const), hold: fc.nat(), tokens: fc.nat(200) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('close' as const),
      hold: fc.nat(),
      ending: fc.constantFrom(...charged, ...uncharged),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('credit' as const),
      account,
      microcents: fc.integer({ min: 1, max: 30_000 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('debit' as const),
      account,
      microcents: fc.integer({ min: 1, max: 30_000 }),
    }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

interface ActiveRequests {
  readonly account: number;
  bill: Bill;
  readonly hold: Hold;
  promptTokens: number;
  completionTokens: number;
}

/** A microcent for a token, so that a sum of tokens is what they cost. */
const penny = { input: 1_000_000n, output: 1_000_000n, cacheRead: 0n };

/** The bill of the same request for a model with other prices. */
const rebound = (of: Bill, step: Omit<Extract<Step, { do: 'rebind' }>, 'do' | 'hold'>): Bill => ({
  ...of,
  model: { id: 'other' },
  prices: {
    input: BigInt(step.inputPrice) * 1_000_000n,
    output: BigInt(step.outputPrice) * 1_000_000n,
    cacheRead: 0n,
  },
  promptTokensMax: step.promptTokens,
  completionTokensMax: step.completionTokensMax,
});

const firstStepOf = ({ prices, promptTokensMax, completionTokensMax }: Bill): bigint =>
  costOf(promptTokensMax, Math.min(completionTokensMax, holdStepTokens), prices);

/** The counter's accounts of one run, and what they should have. */
class Run {
  readonly counter: Counter;
  readonly ids: readonly string[];
  /** Credits less debits less what was charged. */
  readonly balance: bigint[];
  readonly running: ActiveRequests[] = [];

  constructor(counter: Counter, ids: readonly string[], balance: bigint[]) {
    this.counter = counter;
    this.ids = ids;
    this.balance = balance;
  }

  static async open(counter: Counter, name: string, microcents: readonly number[]): Promise<Run> {
    const ids = microcents.map((_, index) => `acct_${name}_${index}`);
    for (const [index, id] of ids.entries()) await customer(counter.store, id, BigInt(microcents[index]!));
    return new Run(counter, ids, microcents.map(BigInt));
  }

  held(account: number): bigint {
    return this.running
      .filter((one) => one.account === account)
      .reduce((sum, { hold }) => sum + hold.heldMicrocents, 0n);
  }

  /** The step begins now; its promise resolves with whether it did what it was for. */
  async take(step: Step): Promise<boolean> {
    const { billing, store } = this.counter;
    switch (step.do) {
      case 'hold': {
        const made = bill(this.ids[step.account]!, step.promptTokens, step.completionTokensMax);
        try {
          const hold = await billing.hold(made);
          this.running.push({
            account: step.account,
            bill: made,
            hold,
            promptTokens: step.promptTokens,
            completionTokens: 0,
          });
          return true;
        } catch (error) {
          assert.ok(error instanceof ApiError && error.code === 'insufficient_credits', String(error));
          return false;
        }
      }
      case 'cover': {
        const one = this.running[step.hold % this.running.length];
        if (one === undefined) return false;
        one.completionTokens += step.tokens;
        return await one.hold.cover(used(one.promptTokens, one.completionTokens));
      }
      case 'rebind': {
        const one = this.running[step.hold % this.running.length];
        if (one === undefined) return false;
        const before = one.hold.heldMicrocents;
        const to = rebound(one.bill, step);
        const bound = one.hold.rebind(to);
        const isHeld = typeof bound === 'boolean' ? bound : await bound;
        assert.ok(one.hold.heldMicrocents >= before, 'what is held is never less than before');
        if (!isHeld) return false;
        assert.ok(one.hold.heldMicrocents >= firstStepOf(to), 'at least the first step of the other model is held');
        // Another model begins anew.
        Object.assign(one, { bill: to, promptTokens: step.promptTokens, completionTokens: 0 });
        return true;
      }
      case 'settle': {
        const one = this.#end(step.hold);
        if (one === undefined) return false;
        await one.hold.settle(receipt(one.bill, one.promptTokens, one.completionTokens + step.tokens, 'finished'));
        this.#charge(one, one.completionTokens + step.tokens);
        // Closing what has been settled, as `run` does in its `finally`, changes nothing.
        await one.hold.close(receipt(one.bill, one.promptTokens, one.completionTokens + step.tokens, 'finished'));
        return true;
      }
      case 'close': {
        const one = this.#end(step.hold);
        if (one === undefined) return false;
        await one.hold.close(receipt(one.bill, one.promptTokens, one.completionTokens, step.ending));
        this.#charge(one, (charged as readonly string[]).includes(step.ending) ? one.completionTokens : undefined);
        return true;
      }
      case 'credit':
        await store.ledger.transfer(grant(this.ids[step.account]!, BigInt(step.microcents)));
        this.balance[step.account]! += BigInt(step.microcents);
        return true;
      case 'debit':
        try {
          await store.ledger.transfer(chargeback(this.ids[step.account]!, BigInt(step.microcents)));
        } catch (error) {
          assert.match(String(error), /does not cover/);
          return false;
        }
        this.balance[step.account]! -= BigInt(step.microcents);
        return true;
    }
  }

  #end(hold: number): ActiveRequests | undefined {
    const [one] = this.running.splice(this.running.length === 0 ? 0 : hold % this.running.length, 1);
    return one;
  }

  /** M2: the charge is the price of what was used, and never more than was held; `check` compares with the ledger. */
  #charge(one: ActiveRequests, completionTokens: number | undefined): void {
    const price = completionTokens === undefined ? 0n : costOf(one.promptTokens, completionTokens, one.bill.prices);
    const due = price < one.hold.heldMicrocents ? price : one.hold.heldMicrocents;
    this.balance[one.account]! -= due;
  }

  /** At rest: balance = free + held, in memory and in the database, and nothing is below zero. */
  async check(): Promise<void> {
    for (const [index, id] of this.ids.entries()) {
      assert.equal(await balanceOf(this.counter.store, id), this.balance[index]);
      assert.ok(this.balance[index]! >= 0n);
      const free = this.counter.billing.freeMicrocents(id);
      if (free === undefined) assert.equal(this.held(index), 0n);
      else
        assert.deepEqual(
          { free, held: this.held(index) },
          { free: this.balance[index]! - this.held(index), held: this.held(index) },
        );
      assert.ok((free ?? 0n) >= 0n);
    }
  }

  async endAll(): Promise<void> {
    while (this.running.length > 0) await this.take({ do: 'close', hold: 0, ending: 'failed' });
    await this.check();
    for (const [index, id] of this.ids.entries()) {
      assert.equal(
        this.counter.billing.freeMicrocents(id) ?? this.balance[index],
        this.balance[index],
        'nothing stays on hold',
      );
    }
  }
}

/**
 * docs/money.md, "The hold": the largest prompt and answer, and how many tokens of each are held after so much was used. What is held
 * cannot be spent by other requests meanwhile.
 */
const growths: readonly {
  readonly name: string;
  readonly prompt: number;
  readonly most: number;
  readonly steps: readonly (readonly [
    prompt: number,
    completion: number,
    heldPrompt: number,
    heldCompletion: number,
  ])[];
}[] = [
  {
    name: 'grows by 2,048 tokens when fewer than 256 are left, up to the longest answer, and beyond it only for one that goes on',
    prompt: 10,
    most: 5_000,
    steps: [
      [10, 0, 10, 2_048],
      [10, 1_792, 10, 2_048],
      [10, 1_793, 10, 3_841],
      [10, 3_585, 10, 3_841],
      [10, 3_586, 10, 5_000],
      [10, 4_999, 10, 5_000],
      [10, 5_000, 10, 5_000],
      [10, 5_001, 10, 7_049],
      [10, 6_793, 10, 7_049],
      [10, 6_794, 10, 8_842],
    ],
  },
  {
    name: 'of an answer of one step does not grow',
    prompt: 10,
    most: 2_048,
    steps: [
      [10, 2_047, 10, 2_048],
      [10, 2_048, 10, 2_048],
    ],
  },
  {
    name: 'of a short answer covers that, to its last token',
    prompt: 10,
    most: 1,
    steps: [
      [10, 0, 10, 1],
      [10, 1, 10, 1],
    ],
  },
  { name: 'without an answer covers the prompt', prompt: 10, most: 0, steps: [[10, 0, 10, 0]] },
  {
    name: 'grows by one token of a prompt that is one longer than its bound, and keeps the bound of a shorter one',
    prompt: 10,
    most: 100,
    steps: [
      [9, 0, 10, 100],
      [11, 0, 11, 100],
      [10, 100, 11, 100],
      [2_000, 50, 2_000, 100],
    ],
  },
  {
    name: 'that grows for the answer still covers the longest prompt',
    prompt: 1_000,
    most: 5_000,
    steps: [[10, 1_793, 1_000, 3_841]],
  },
];

for (const { name, prompt, most, steps } of growths)
  test(`a hold ${name}`, async (t) => {
    const { store, billing } = await openCounter(t);
    const credit = costOf(10_000, 10_000, penny);
    await customer(store, 'acct_a', credit);
    const hold = await billing.hold(bill('acct_a', prompt, most, { prices: penny }));
    for (const [promptTokens, completionTokens, heldPrompt, heldCompletion] of steps) {
      const held = costOf(heldPrompt, heldCompletion, penny);
      assert.equal(await hold.cover(used(promptTokens, completionTokens)), true);
      assert.deepEqual(
        [hold.heldMicrocents, billing.heldMicrocents, billing.freeMicrocents('acct_a')],
        [held, held, credit - held],
        `${promptTokens} and ${completionTokens} tokens`,
      );
    }
  });

test('another model: a cheaper one keeps what is held and uses it up first, a dearer one adds what its first step costs more', async (t) => {
  const { store, billing } = await openCounter(t);
  const [held, credit] = [costOf(10, 2_048), 100_000n];
  await customer(store, 'acct_a', credit);
  const made = bill('acct_a', 10, 100_000);
  const hold = await billing.hold(made);
  const at = async (step: boolean | Promise<boolean>): Promise<readonly (bigint | boolean | undefined)[]> => [
    await step,
    hold.heldMicrocents,
    billing.freeMicrocents('acct_a'),
  ];
  const cheap = { ...made, prices: penny };
  const is = (amount: bigint, isDone = true): readonly (bigint | boolean)[] => [isDone, amount, credit - amount];
  assert.deepEqual(await at(hold.rebind(cheap)), is(held));
  assert.deepEqual(await at(hold.cover(used(10, 1_793))), is(held));
  // 10 + 12,288 tokens cost less than what is held, 2,048 more of them more.
  assert.deepEqual(await at(hold.cover(used(10, 10_240))), is(held));
  assert.deepEqual(await at(hold.cover(used(10, 12_288))), is(held));
  const longer = costOf(10, 14_500 + holdStepTokens, penny);
  assert.deepEqual(await at(hold.cover(used(10, 14_500))), is(longer));
  // One microcent more than is held, and then all that there is and one more.
  const prompt = (amount: bigint): number => Number(amount) - holdStepTokens;
  assert.deepEqual(await at(hold.rebind(cheap, prompt(longer + 1n))), is(longer + 1n));
  assert.deepEqual(await at(hold.rebind(cheap, prompt(credit + 1n))), is(credit, false));
  assert.deepEqual(await at(hold.rebind(cheap, prompt(credit))), is(credit));
  await hold.close(receipt(cheap, 0, 0, 'failed'));
});

test('what a plan pays for holds nothing, however long it is and whichever model serves it', async (t) => {
  const { store, billing } = await openCounter(t);
  await customer(store, 'acct_a', 100n);
  const made = bill('acct_a', 10, 10, { plan: 'p' });
  const hold = await billing.hold(made);
  assert.equal(hold.cover(used(1_000, 100_000)), true);
  assert.equal(
    hold.rebind(rebound(made, { promptTokens: 10, completionTokensMax: 10, inputPrice: 9, outputPrice: 9 })),
    true,
  );
  assert.deepEqual([hold.heldMicrocents, billing.heldMicrocents], [0n, 0n]);
  await hold.settle(receipt(made, 1_000, 100_000, 'finished'));
  assert.equal(await balanceOf(store, 'acct_a'), 100n);
});

for (const grows of ['its answer', 'another model'] as const)
  test(`a hold that ends while the store is asked for more (${grows}) gives it back`, async (t) => {
    const { store, billing } = await openCounter(t);
    const credit = costOf(10, 2_048) + 100n;
    await customer(store, 'acct_a', credit);
    const made = bill('acct_a', 10, 10_000);
    const hold = await billing.hold(made);
    const growing =
      grows === 'its answer' ? hold.cover(used(10, 1_793)) : hold.rebind({ ...made, promptTokensMax: 10_000 });
    assert.ok(growing instanceof Promise, 'memory alone cannot tell');
    await hold.close(receipt(made, 10, 0, 'failed'));
    assert.equal(await growing, false);
    assert.deepEqual(
      [billing.freeMicrocents('acct_a'), billing.heldMicrocents, billing.openHolds, hold.heldMicrocents],
      [credit, 0n, 0, costOf(10, 2_048)],
    );
  });

const credits = fc.array(fc.nat(60_000), { minLength: accounts, maxLength: accounts });

test('one step after the other: a hold, an extension and a debit go through exactly when the free balance covers them', async (t) => {
  const counter = await openCounter(t);
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(credits, fc.array(step, { maxLength: 40 }), async (microcents, steps) => {
      const run = await Run.open(counter, `seq${runs++}`, microcents);
      for (const step of steps) {
        const expected = expectation(run, step);
        const did = await run.take(step);
        if (expected !== undefined) assert.equal(did, expected, JSON.stringify(step));
        await run.check();
      }
      await run.endAll();
    }),
    { numRuns: 60 },
  );
  assert.equal(counter.billing.openHolds, 0);
  assert.deepEqual(await differencesOf(counter.file), []);
});

/** What the step must come to, by the balances alone. */
function expectation(run: Run, step: Step): boolean | undefined {
  const free = (account: number): bigint => run.balance[account]! - run.held(account);
  switch (step.do) {
    case 'hold':
      return free(step.account) >= costOf(step.promptTokens, Math.min(step.completionTokensMax, holdStepTokens));
    case 'cover': {
      const one = run.running[step.hold % run.running.length];
      if (one === undefined) return false;
      // Covered while there is enough for what was used; how far ahead the hold is extended is its own business.
      return (
        costOf(one.promptTokens, one.completionTokens + step.tokens, one.bill.prices) <=
        one.hold.heldMicrocents + free(one.account)
      );
    }
    case 'rebind': {
      const one = run.running[step.hold % run.running.length];
      return one !== undefined && firstStepOf(rebound(one.bill, step)) <= one.hold.heldMicrocents + free(one.account);
    }
    case 'debit':
      return free(step.account) >= BigInt(step.microcents);
    case 'settle':
    case 'close':
    case 'credit':
      return undefined;
  }
}

test('many steps at once, in any order: balance = free + held when they have ended, and nothing was ever overdrawn', async (t) => {
  const counter = await openCounter(t);
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(
      credits,
      fc.array(fc.array(step, { minLength: 1, maxLength: 25 }), { maxLength: 6 }),
      async (microcents, waves) => {
        const run = await Run.open(counter, `par${runs++}`, microcents);
        for (const wave of waves) {
          await Promise.all(wave.map((step) => run.take(step)));
          await run.check();
        }
        await run.endAll();
      },
    ),
    { numRuns: 60 },
  );
  assert.equal(counter.billing.openHolds, 0);
  assert.deepEqual(await differencesOf(counter.file), []);
});

test('requests that wait for the same first credit lease share it: as many are funded as it pays for', async (t) => {
  const counter = await openCounter(t);
  await fc.assert(
    fc.asyncProperty(
      fc.uuid(),
      fc.integer({ min: 0, max: 12 }),
      fc.integer({ min: 0, max: 99 }),
      async (name, paidFor, rest) => {
        const id = `acct_${name}`;
        await customer(counter.store, id, BigInt(paidFor) * costOf(20, 10) + BigInt(rest));
        const outcomes = await Promise.allSettled(
          Array.from({ length: 20 }, () => counter.billing.hold(bill(id, 20, 10))),
        );
        assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, paidFor);
        assert.equal(counter.billing.freeMicrocents(id), BigInt(rest));
      },
    ),
    { numRuns: 50 },
  );
});
