import type { PriceObject } from '../../account-api/price-object.ts';
import type { Config } from '../../config/config.ts';
import { dollars } from '../../platform/dollars.ts';
import { changes, lists, onlyAccount, option, word } from '../command-row.ts';
import type { CommandRow } from '../command-row.ts';
import { moment, multiple, pricePerMillion } from '../option.ts';
import { dayAndTime, timeText } from '../output.ts';

interface OfAccount {
  readonly account?: string;
}
interface PriceOptions extends OfAccount {
  /** Microcents per million tokens, from the options' reader. */
  readonly input?: bigint;
  readonly output?: bigint;
  readonly cacheRead?: bigint;
  /** Ten-thousandths of the usual price. */
  readonly priority?: number;
  readonly flex?: number;
  readonly batch?: number;
  /** Milliseconds since 1970. */
  readonly from?: number;
  readonly to?: number;
}

/** The list prices of a model, in the form of an account's rates. */
const listPrice = ({ id, pricing, tiers }: Config['models'][number]): PriceObject => ({
  object: 'account_price',
  account_id: 'all',
  model: id,
  input_microcents_per_million: Number(pricing.input),
  output_microcents_per_million: Number(pricing.output),
  cache_read_microcents_per_million: Number(pricing.cacheRead),
  tier_multiples: Object.fromEntries(
    Object.entries(tiers).flatMap(([tier, of]) =>
      of === undefined ? [] : [[tier, Number(of.priceMultiple) / 10_000]],
    ),
  ),
  valid_from: 0,
  valid_to: null,
});

const payer = option('--account <account-id>', 'account of the rates (default: the only account)');

const shown = (rate: number | null): string | null => (rate === null ? null : dollars(BigInt(rate)));

const rateColumns = {
  input: (price: PriceObject) => shown(price.input_microcents_per_million),
  output: (price: PriceObject) => shown(price.output_microcents_per_million),
  cached: (price: PriceObject) => shown(price.cache_read_microcents_per_million),
};

/** `priority ×1.5, flex ×0.5`; null: they say nothing of tiers. */
function multiples({ tier_multiples: tiers }: PriceObject): string | null {
  const given = Object.entries(tiers ?? {});
  return given.length === 0 ? null : given.map(([tier, multiple]) => `${tier} ×${multiple}`).join(', ');
}

const multipleOf = (tier: string): string => `what the tier ${tier} costs as a multiple of the usual price`;

export const priceCommands: readonly CommandRow[] = [
  changes({
    name: 'set',
    about: 'set an account’s rates for a model: prices, multiples of service tiers, or both',
    takes: [
      word('<model>', "which model; '*' for the tiers of all models"),
      option(
        '--input <price>',
        'price of a million prompt tokens: cents, or dollars with a $, for example $0.125',
        pricePerMillion,
      ),
      option('--output <price>', 'price of a million generated tokens', pricePerMillion),
      option('--cache-read <price>', 'price of a million cached prompt tokens (default: as --input)', pricePerMillion),
      option('--priority <multiple>', multipleOf('priority'), multiple(1, 100)),
      option('--flex <multiple>', multipleOf('flex'), multiple(0, 1)),
      option('--batch <multiple>', multipleOf('batch'), multiple(0, 1)),
      payer,
      option('--from <time>', 'when they start, in UTC (default: now)', moment),
      option('--to <time>', 'when they end, in UTC (default: never)', moment),
    ],
    ask: async (options: PriceOptions, [named], context) => {
      const { configuredModels } = await import('../configured-model.ts');
      const { everyModel } = await import('../../store/row-facts.ts');
      return {
        kind: 'set_price',
        accountId: options.account,
        model: named === everyModel ? named : (configuredModels(context, [named])[0] ?? named),
        input: options.input?.toString(),
        output: options.output?.toString(),
        cacheRead: options.cacheRead?.toString(),
        tiers: { priority: options.priority, flex: options.flex, batch: options.batch },
        validFrom: options.from,
        validTo: options.to,
      };
    },
    done: async (answer) => {
      const { priceObject } = await import('../../account-api/price-object.ts');
      const { everyModel } = await import('../../store/row-facts.ts');
      const price = priceObject(answer);
      const until = price.valid_to === null ? '' : ` until ${timeText(price.valid_to)}`;
      const rates = Object.values(rateColumns).map((rate) => rate(price));
      const model = price.model === everyModel ? 'all models' : price.model;
      const what = [
        ...(price.input_microcents_per_million === null
          ? []
          : [`${rates.join(' / ')} for a million input / output / cached tokens of ${model}`]),
        ...(price.tier_multiples === null ? [] : [`the usual price of ${model} times: ${multiples(price)}`]),
      ];
      return {
        json: price,
        lines: [`${price.account_id} pays ${what.join(', and ')}, from ${timeText(price.valid_from)}${until}.`],
      };
    },
  }),
  lists({
    name: 'list',
    about: 'list the prices of models, and the present and future rates of accounts that have their own',
    takes: [onlyAccount],
    api: ({ account }: OfAccount) => ({
      path: '/v1/admin/account_prices',
      query: { account_id: account },
      limit: undefined,
    }),
    read: async ({ repositories, now }, { account: accountId }: OfAccount) => {
      const { priceObject } = await import('../../account-api/price-object.ts');
      const of = accountId === undefined ? {} : { accountId };
      return (await repositories.listAccountPrices({ endingAfter: now, limit: 1000, ...of })).map(priceObject);
    },
    above: ({ models }, { account }) => (account === undefined ? models.map(listPrice) : []),
    columns: {
      model: ({ model }) => model,
      account: ({ account_id: account }) => account,
      ...rateColumns,
      tiers: multiples,
      from: ({ valid_from: from }) => (from === 0 ? null : dayAndTime(timeText(from))),
      until: ({ valid_to: to }) => (to === null ? null : dayAndTime(timeText(to))),
    },
  }),
  changes({
    name: 'remove',
    about: "end an account's rates for a model; the list prices apply again",
    takes: [word('<model>', "which model; '*' for the tiers of all models"), payer],
    // The model may have left the configuration.
    ask: ({ account }: OfAccount, [model]) => ({ kind: 'remove_price', accountId: account, model }),
    done: ({ accountId, ended }, _options, [model]) => ({
      json: { account: accountId, model, ended },
      lines: [
        ended === 0
          ? `${accountId} has no rates of its own for ${model}.`
          : `${accountId} pays the list prices for ${model} from now on; running requests are charged at their old rates.`,
      ],
    }),
  }),
];
