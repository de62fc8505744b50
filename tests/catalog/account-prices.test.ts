import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import fc from 'fast-check';

import { ratesOf } from '../../src/accounts/account-rates.ts';
import { multiplesAt, pricesAt, tierPricesAt } from '../../src/billing/account-prices.ts';
import { costMicrocents, wholePrice } from '../../src/catalog/pricing.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import type { AccountPrice } from '../../src/store/repositories/account-prices.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { capableModel } from '../inference/pipeline/models.ts';
import { customer, openStore, temporaryFolder, uuid } from '../store/fixture.ts';

const model = { ...capableModel, id: 'Model-A' };

const price = (
  validFrom: number,
  validTo: number | null,
  input: bigint,
  { accountId = 'acct_a', modelId = 'model-a' } = {},
): AccountPrice => ({
  accountId,
  modelId,
  validFrom,
  validTo,
  input,
  output: 2n * input,
  cacheRead: 0n,
});

test('the rates that began last and have not ended hold; else the list prices', () => {
  const other = price(220, null, 9n, { modelId: 'model-b' });
  const rates = [price(250, 260, 3n), price(100, null, 1n), other, price(200, 300, 2n)];
  const inputAt = (at: number): bigint => pricesAt(model, rates, at).input;
  const expected = [
    [99, model.prices.input],
    [100, 1n],
    [199, 1n],
    [200, 2n],
    [249, 2n],
    [250, 3n],
    [259, 3n],
    [260, 2n],
    [299, 2n],
    [300, 1n],
  ] as const;
  for (const [at, input] of expected) assert.equal(inputAt(at), input, String(at));
  assert.deepEqual(pricesAt(model, rates, 200), { input: 2n, output: 4n, cacheRead: 0n });
  assert.equal(pricesAt(model, undefined, 200), model.prices);
  assert.equal(pricesAt({ ...model, id: 'model-c' }, rates, 200), model.prices, 'they are of one model');

  const ending = [price(100, 255, 1n), price(200, 255, 2n), price(250, 255, 3n)];
  assert.deepEqual(
    [254, 255, 400].map((at) => pricesAt(model, ending, at).input),
    [3n, model.prices.input, model.prices.input],
  );
});

test('a tier costs what the rates for the model say, else those for all models, else the card, each of those that began last', () => {
  const only = (
    validFrom: number,
    tierMultiples: AccountPrice['tierMultiples'],
    modelId = 'model-a',
  ): AccountPrice => ({
    accountId: 'acct_a',
    modelId,
    validFrom,
    validTo: null,
    input: null,
    output: null,
    cacheRead: null,
    tierMultiples: tierMultiples ?? null,
  });
  const tiered = { ...model, tiers: { priority: { price: 20_000n }, flex: { price: 5_000n } } };
  const rates = [
    only(100, { priority: 18_000, batch: 3_000 }, '*'),
    only(200, { priority: 15_000 }),
    // Prices alone, and multiples alone, leave the others as they were.
    price(300, null, 7n),
    only(400, { flex: 2_500 }),
    { ...only(500, { priority: 12_345 }), validTo: 600 },
    only(550, { priority: 10_000, flex: 0, batch: 0 }, 'model-b'),
  ];
  // At a time: priority, flex, batch, and the input price of default.
  const table = [
    [99, 20_000, 5_000, 5_000, model.prices.input],
    [100, 18_000, 5_000, 3_000, model.prices.input],
    [200, 15_000, 5_000, 3_000, model.prices.input],
    [300, 15_000, 5_000, 3_000, 7n],
    [400, 15_000, 2_500, 3_000, 7n],
    [500, 12_345, 2_500, 3_000, 7n],
    [600, 15_000, 2_500, 3_000, 7n],
  ] as const;
  for (const [at, priority, flex, batch, input] of table) {
    assert.deepEqual(tierPricesAt(tiered, 'default', rates, at), {
      prices: pricesAt(model, rates, at),
      multiple: undefined,
    });
    for (const [tier, multiple] of Object.entries({ priority, flex, batch })) {
      const charged = tierPricesAt(tiered, tier as 'priority', rates, at);
      assert.equal(charged.multiple, multiple, `${tier} at ${at}`);
      assert.equal(charged.prices.input, (input * BigInt(multiple) + wholePrice - 1n) / wholePrice, `${tier} at ${at}`);
    }
    const sold = { priority: BigInt(priority), flex: BigInt(flex) };
    // Every model runs batches; the card names what differs from half.
    assert.deepEqual(multiplesAt(tiered, rates, at), at < 100 ? sold : { ...sold, batch: BigInt(batch) });
  }
  assert.equal(multiplesAt(model, undefined, 0), undefined);
});

/** One step of an operator, some milliseconds after the one before. */
type Step =
  | { readonly type: 'add'; readonly inMs: number; readonly forMs: number | null; readonly input: bigint }
  | { readonly type: 'end' };

const steps = fc.array(
  fc.record({
    afterMs: fc.integer({ min: 1, max: 50 }),
    step: fc.oneof(
      fc.record({
        type: fc.constant('add' as const),
        inMs: fc.integer({ min: 0, max: 100 }),
        forMs: fc.option(fc.integer({ min: 1, max: 100 })),
        input: fc.bigInt({ min: 0n, max: 10n ** 15n }),
      }),
      fc.record({ type: fc.constant('end' as const) }),
    ),
  }),
  { maxLength: 12 },
);

test('what a service has followed is what the next one loads, and what either charges at any later time', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  let accounts = 0;
  await fc.assert(
    fc.asyncProperty(steps, async (list) => {
      const accountId = `acct_${++accounts}`;
      await customer(store, accountId, 0n);
      let followed: readonly AccountPrice[] = [];
      let expected: readonly AccountPrice[] = [];
      let now = 1_000;
      for (const { afterMs, step } of list as readonly { readonly afterMs: number; readonly step: Step }[]) {
        now += afterMs;
        expected = await take(step, accountId, now, store.repositories, expected);
        followed = await store.repositories.listAccountPrices({ accountId, endingAfter: now });
      }
      const loaded = (await ratesOf('all', store.repositories, now)).get(accountId);
      const some = (await ratesOf([accountId, 'acct_other'], store.repositories, now)).get(accountId);
      for (let at = now; at < now + 210; at += 3)
        for (const rates of [loaded, some, followed])
          assert.deepEqual(pricesAt(model, rates, at), pricesAt(model, expected, at), `at ${at - now}`);
    }),
    { numRuns: 30 },
  );
});

/** Does it to the database; resolves with the rates that there are then. */
async function take(
  step: Step,
  accountId: string,
  now: number,
  repositories: Repositories,
  before: readonly AccountPrice[],
): Promise<readonly AccountPrice[]> {
  if (step.type === 'end') {
    await repositories.endAccountPrices({ accountId, modelId: 'model-a', at: now, changeId: uuid() });
    return before
      .filter(({ validFrom }) => validFrom < now)
      .map((row) => (row.validTo === null || row.validTo > now ? { ...row, validTo: now } : row));
  }
  const validFrom = now + step.inMs;
  const row = price(validFrom, step.forMs === null ? null : validFrom + step.forMs, step.input, { accountId });
  try {
    await repositories.addAccountPrice({ price: row, at: now, changeId: uuid() });
  } catch (error) {
    assert.ok(error instanceof StoreError && error.code === 'conflict', String(error));
    return before;
  }
  return [...before, row];
}

test('the database takes no rates that a hold would not cover, and none of nobody', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 0n);
  const add = (changes: Partial<AccountPrice>) =>
    store.repositories.addAccountPrice({
      price: { ...price(5, null, 10n), ...changes } as AccountPrice,
      at: 5,
      changeId: uuid(),
    });
  await assert.rejects(add({ cacheRead: 11n }), StoreError);
  await assert.rejects(add({ input: -1n, cacheRead: 0n }), StoreError);
  await assert.rejects(add({ validTo: 5 }), StoreError);
  // Neither prices nor multiples; a part of the prices; prices of all models.
  const none = { input: null, output: null, cacheRead: null };
  await assert.rejects(add(none), StoreError);
  await assert.rejects(add({ output: null } as unknown as AccountPrice), StoreError);
  await assert.rejects(add({ modelId: '*' }), StoreError);
  await assert.rejects(add({ accountId: 'acct_nobody' }), /there is no account/);
  await assert.rejects(add({ accountId: 'house_cash' }), /there is no account/);
  await add({});
  await assert.rejects(add({ input: 7n }), /at that very time exist already/);
  // No charge is above what the input price would make of it, whatever was cached.
  fc.assert(
    fc.property(
      fc.nat(100_000),
      fc.nat(100_000),
      fc.bigInt(0n, 10n ** 12n),
      fc.bigInt(0n, 10n ** 12n),
      (a, b, x, y) => {
        const rates = { input: x > y ? x : y, output: x, cacheRead: x > y ? y : x };
        const usage = {
          promptTokens: Math.max(a, b),
          cachedTokens: Math.min(a, b),
          completionTokens: a,
          reasoningTokens: 0,
        };
        assert.ok(costMicrocents(usage, rates) <= costMicrocents({ ...usage, cachedTokens: 0 }, rates));
      },
    ),
  );
});

test('pages of rates come in order, and whole', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  const rows: AccountPrice[] = [];
  for (const accountId of ['acct_a', 'acct_b']) {
    await customer(store, accountId, 0n);
    for (const validFrom of [30, 10, 20]) rows.push(price(validFrom, null, BigInt(validFrom), { accountId }));
  }
  for (const row of rows) await store.repositories.addAccountPrice({ price: row, at: 1, changeId: uuid() });
  const found: AccountPrice[] = [];
  for (;;) {
    const after = found.at(-1);
    const page = await store.repositories.listAccountPrices({
      endingAfter: 0,
      limit: 2,
      ...(after === undefined ? {} : { after }),
    });
    found.push(...page);
    if (page.length === 0) break;
  }
  const place = (row: AccountPrice): string => `${row.accountId} ${row.validFrom}`;
  assert.deepEqual(found.map(place), rows.map(place).sort());
});
