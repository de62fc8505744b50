import { priceObject } from '../account-api/price-object.ts';
import type { PriceObject } from '../account-api/price-object.ts';
import { dollars } from '../platform/dollars.ts';
import { configuredModels } from './configured-model.ts';
import type { Context } from './context.ts';
import { reading, writing } from './database.ts';
import { table, timeText } from './output.ts';

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
  const price = priceObject(answer);
  const [input, output, cacheRead] = ratesOf(price);
  const until = price.valid_to === null ? '' : ` until ${timeText(price.valid_to)}`;
  context.print.result(price, [
    `${price.account_id} pays ${input} / ${output} / ${cacheRead} for a million input / output / cached tokens of ${model}, from ${timeText(price.valid_from)}${until}.`,
  ]);
  return 0;
}

export async function listPrices(context: Context, options: { readonly account?: string }): Promise<number> {
  const rows = await reading(context, async (repositories, _db, now) =>
    repositories.listAccountPrices({
      endingAfter: await now(),
      limit: 1000,
      ...(options.account === undefined ? {} : { accountId: options.account }),
    }),
  );
  const prices = rows.map(priceObject);
  context.print.result(
    prices,
    table(
      ['account', 'model', 'input', 'output', 'cached', 'from', 'until'],
      prices.map((price) => [
        price.account_id,
        price.model,
        ...ratesOf(price),
        timeText(price.valid_from),
        price.valid_to === null ? 'for good' : timeText(price.valid_to),
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
      : `${answer.accountId} pays the list prices for ${model} from now on; running requests are charged at their old rates.`,
  ]);
  return 0;
}

/** For input, output and cached tokens. */
const ratesOf = (price: PriceObject): readonly [string, string, string] => [
  dollars(BigInt(price.input_microcents_per_million)),
  dollars(BigInt(price.output_microcents_per_million)),
  dollars(BigInt(price.cache_read_microcents_per_million)),
];
