import { dollars } from '../billing/cents.ts';
import type { AccountPrice } from '../store/repositories/queries.ts';
import { configuredModels } from './configured-model.ts';
import type { Context } from './context.ts';
import { reading, writing } from './database.ts';
import { table } from './output.ts';

interface PriceOptions {
  readonly account?: string;
  /** Microcents per million tokens, from the options' reader. */
  readonly input: bigint;
  readonly output: bigint;
  readonly cacheRead?: bigint;
  /** Milliseconds since 1970. */
  readonly from?: number;
  readonly to?: number;
}

export async function setPrice(context: Context, options: PriceOptions, named: string): Promise<number> {
  const [model = named] = configuredModels(context, [named]);
  const answer = await writing(context, {
    kind: 'set_price',
    accountId: options.account,
    model,
    input: String(options.input),
    output: String(options.output),
    cacheRead: options.cacheRead === undefined ? undefined : String(options.cacheRead),
    validFrom: options.from,
    validTo: options.to,
  });
  const { accountId, validFrom, validTo } = answer;
  const price = {
    accountId,
    modelId: model,
    validFrom,
    validTo,
    input: BigInt(answer.input),
    output: BigInt(answer.output),
    cacheRead: BigInt(answer.cacheRead),
  };
  context.print.result(shown(price), [
    `${accountId} pays ${dollars(price.input)} / ${dollars(price.output)} / ${dollars(price.cacheRead)} for a million input / output / cached tokens of ${model}, from ${time(validFrom)}${validTo === null ? '' : ` until ${time(validTo)}`}.`,
  ]);
  return 0;
}

export async function listPrices(context: Context, options: { readonly account?: string }): Promise<number> {
  const prices = await reading(context, async (repositories, _db, now) =>
    repositories.listAccountPrices({
      endingAfter: await now(),
      limit: 1000,
      ...(options.account === undefined ? {} : { accountId: options.account }),
    }),
  );
  context.print.result(
    prices.map(shown),
    table(
      ['account', 'model', 'input', 'output', 'cached', 'from', 'until'],
      prices.map((price) => [
        price.accountId,
        price.modelId,
        dollars(price.input),
        dollars(price.output),
        dollars(price.cacheRead),
        time(price.validFrom),
        price.validTo === null ? 'for good' : time(price.validTo),
      ]),
    ),
  );
  return 0;
}

/** The model need not be in the configuration any more. */
export async function removePrice(
  context: Context,
  options: { readonly account?: string },
  model: string,
): Promise<number> {
  const answer = await writing(context, { kind: 'remove_price', accountId: options.account, model });
  context.print.result({ account: answer.accountId, model, ended: answer.ended }, [
    answer.ended === 0
      ? `${answer.accountId} has no rates of its own for ${model}.`
      : `${answer.accountId} pays the list prices for ${model} from now on; what runs is charged as it began.`,
  ]);
  return 0;
}

const shown = (price: AccountPrice) => ({
  account: price.accountId,
  model: price.modelId,
  input_microcents_per_million: price.input,
  output_microcents_per_million: price.output,
  cache_read_microcents_per_million: price.cacheRead,
  valid_from: time(price.validFrom),
  valid_to: price.validTo === null ? null : time(price.validTo),
});

const time = (ms: number): string => new Date(ms).toISOString();
