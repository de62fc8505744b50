import Type from 'typebox';

import { dollars } from '../../platform/dollars.ts';
import type { AccountPrice } from '../../store/repositories/account-prices.ts';
import { everyModel } from '../../store/row-facts.ts';
import { theRates } from '../audit-subjects.ts';
import { checkedModel } from '../checks.ts';
import { accountMeant, OperationError } from '../operation.ts';
import { operation } from '../perform.ts';
import { microcents, ofAccount, text, time } from '../request-schema.ts';
import type { Input } from '../request-schema.ts';

/**
 * What a tier is of the usual price, in ten-thousandths. As in the configuration, a better place is never cheaper and a worse one never dearer, so
 * that a downgrade costs no more than what was asked for.
 */
const multiple = (minimum: number, maximum: number) => Type.Optional(Type.Integer({ minimum, maximum }));

/** Prices are per million tokens. What is left out stays as it was: by earlier rates, else by the list. */
const priceSchema = Type.Object({
  ...ofAccount,
  /** `*`: all models, of which only tiers can be set. */
  model: text,
  input: Type.Optional(microcents),
  output: Type.Optional(microcents),
  /** Omitted: the input price. */
  cacheRead: Type.Optional(microcents),
  tiers: Type.Optional(
    Type.Object({
      priority: multiple(10_000, 1_000_000),
      flex: multiple(0, 10_000),
      batch: multiple(0, 10_000),
    }),
  ),
  /** Omitted: from now on. */
  validFrom: Type.Optional(time),
  /** Exclusive; omitted: indefinitely. */
  validTo: Type.Optional(time),
});

export const priceOperations = {
  /** Sets rates for an account that replace the list prices. */
  set_price: operation({
    schema: priceSchema,
    audit: { action: 'price.set', subject: theRates },
    run: async (input, { repositories, now, newId }) => {
      const accountId = await accountMeant(input.accountId, repositories);
      const at = now();
      const price = priceOf(input, accountId, at);
      await repositories.addAccountPrice({ price, at, changeId: newId() });
      const { validFrom, validTo, tierMultiples = null } = price;
      const rates =
        price.input === null
          ? { input: null, output: null, cacheRead: null }
          : { input: String(price.input), output: String(price.output), cacheRead: String(price.cacheRead) };
      // Returns the model's name as given, which is the name on its card.
      return { accountId, modelId: input.model, validFrom, validTo, ...rates, tierMultiples };
    },
  }),

  /** Ends rates in force and cancels future ones. */
  remove_price: operation({
    schema: Type.Object({ ...ofAccount, model: text }),
    audit: { action: 'price.remove', subject: theRates },
    run: async ({ accountId: named, model }, { repositories, now, newId }) => {
      const accountId = await accountMeant(named, repositories);
      const modelId = checkedModel(model);
      const ended = await repositories.endAccountPrices({ accountId, modelId, at: now(), changeId: newId() });
      return { accountId, model, ended };
    },
  }),
};

/** The maximum, as in the configuration: 10¹⁵ microcents per million tokens. */
const priceMax = 10n ** 15n;

/** What `set_price` would store. Throws `OperationError` for rates that cannot be set. */
export function priceOf(given: Input<typeof priceSchema>, accountId: string, now: number): AccountPrice {
  const { validFrom = now, validTo } = given;
  // Past charges stay: rates apply from the start of future requests.
  if (validFrom < now) throw new OperationError('Rates cannot start in the past.');
  if (validTo !== undefined && validTo <= validFrom) throw new OperationError('Rates must end after they start.');
  const modelId = checkedModel(given.model);
  const prices = pricesOf(given);
  const tierMultiples = multiplesOf(given.tiers);
  if (prices.input === null && tierMultiples === null)
    throw new OperationError('Rates need prices, multiples of tiers, or both.');
  if (prices.input !== null && modelId === everyModel)
    throw new OperationError('Rates for all models have multiples of tiers only; name a model to set its prices.');
  return { accountId, modelId, validFrom, validTo: validTo ?? null, ...prices, tierMultiples };
}

const noPrices = { input: null, output: null, cacheRead: null } as const;

function pricesOf(given: Input<typeof priceSchema>) {
  if (given.input === undefined && given.output === undefined && given.cacheRead === undefined) return noPrices;
  if (given.input === undefined || given.output === undefined)
    throw new OperationError('Prices need both the input and the output price.');
  const input = BigInt(given.input);
  const output = BigInt(given.output);
  const cacheRead = given.cacheRead === undefined ? input : BigInt(given.cacheRead);
  for (const price of [input, output, cacheRead])
    if (price < 0n || price > priceMax)
      throw new OperationError(`A price must be 0 to ${dollars(priceMax)} for a million tokens.`);
  // A hold is made at the input price, and a charge never exceeds its hold (reliability I2).
  if (cacheRead > input) throw new OperationError('Cached tokens may not cost more than uncached ones.');
  return { input, output, cacheRead };
}

function multiplesOf(tiers: Input<typeof priceSchema>['tiers']): AccountPrice['tierMultiples'] & (object | null) {
  const given = Object.entries(tiers ?? {}).filter(([, of]) => of !== undefined);
  return given.length === 0 ? null : Object.fromEntries(given);
}
