import type { Option } from 'commander';

import type { KeyObject } from '../account-api/key-object.ts';
import type { RateLimits, Rates } from '../accounts/key-limits.ts';
import { centsText } from '../platform/dollars.ts';
import { option } from './command-row.ts';
import type { Context } from './context.ts';
import { wholeCents, wholeNumber } from './option.ts';

export interface RateOptions<Rate> {
  readonly concurrency?: Rate;
  readonly requestsPerMinute?: Rate;
  readonly tokensPerMinute?: Rate;
  readonly requestsPerDay?: Rate;
  readonly tokensPerDay?: Rate;
  readonly spendPerFiveMinutes?: Rate;
  readonly spendPerDay?: Rate;
}

/** A reader of options that also takes `none`. */
export const orNone =
  (read: (text: string) => number) =>
  (text: string): number | 'none' =>
    text === 'none' ? text : read(text);

/** What a key or an account may use in a time. `none` removes a limit, where there may be one. */
export function rateOptions(last: (read: (text: string) => number) => (text: string) => unknown): readonly Option[] {
  const [requests, tokens, cents] = [last(wholeNumber(1, 1e9)), last(wholeNumber(1, 1e12)), last(wholeCents)];
  return [
    option('--concurrency <number>', 'maximum of concurrent requests', last(wholeNumber(1, 1e6))),
    option('--requests-per-minute <number>', 'maximum of requests per minute', requests),
    option('--tokens-per-minute <number>', 'maximum of tokens per minute, in prompts and answers', tokens),
    option('--requests-per-day <number>', 'maximum of requests per day', requests),
    option('--tokens-per-day <number>', 'maximum of tokens per day, in prompts and answers', tokens),
    option('--spend-per-five-minutes <dollars>', 'what its requests may cost in five minutes, for example 2.00', cents),
    option('--spend-per-day <dollars>', 'what its requests may cost in a day', cents),
  ];
}

/** An account has no such option. */
export const sessionOption = (last: (read: (text: string) => number) => (text: string) => unknown): Option =>
  option('--session-budget <dollars>', 'what one conversation may cost, for example 5.00', last(wholeCents));

/** What the options set, of all models. */
export const ratesOf = <Rate>(options: RateOptions<Rate>) => ({
  requestsPerMinute: options.requestsPerMinute,
  tokensPerMinute: options.tokensPerMinute,
  requestsPerDay: options.requestsPerDay,
  tokensPerDay: options.tokensPerDay,
  centsPerFiveMinutes: options.spendPerFiveMinutes,
  centsPerDay: options.spendPerDay,
});

export const modelOption = option('--model <model>', 'limits of requests, tokens and spending are of this model alone');

type Changed = { readonly [Name in keyof Rates]: Rates[Name] | null };

/** The limits of `ratesOf` as a change: of all models, or of the one that `--model` names. */
export async function ratesAsked(
  options: RateOptions<number | 'none'> & { readonly model?: string },
  context: Pick<Context, 'config'>,
): Promise<Changed | { readonly byModel: Readonly<Record<string, Changed>> }> {
  const rates: Changed = Object.fromEntries(
    Object.entries(ratesOf(options)).map(([name, rate]) => [name, rate === 'none' ? null : rate]),
  );
  if (options.model === undefined) return rates;
  const { configuredModels } = await import('./configured-model.ts');
  const ids = configuredModels(context, [options.model]);
  return { byModel: Object.fromEntries(ids.map((id) => [id.toLowerCase(), rates])) };
}

type Shown = Pick<KeyObject, 'max_concurrency' | 'limits_by_model'> & ShownRates;
type ShownRates = Omit<KeyObject['limits_by_model'][number], 'model'>;

/** The limits of an object of the account API. */
export const ratesShownIn = (shown: Shown): RateLimits => ({
  ...(shown.max_concurrency === null ? {} : { concurrencyMax: shown.max_concurrency }),
  ...ratesShown(shown),
  byModel: Object.fromEntries(shown.limits_by_model.map(({ model, ...rates }) => [model, ratesShown(rates)])),
});

const ratesShown = (shown: ShownRates): Rates => ({
  requestsPerMinute: shown.requests_per_minute ?? undefined,
  tokensPerMinute: shown.tokens_per_minute ?? undefined,
  requestsPerDay: shown.requests_per_day ?? undefined,
  tokensPerDay: shown.tokens_per_day ?? undefined,
  centsPerFiveMinutes: shown.cents_per_five_minutes ?? undefined,
  centsPerDay: shown.cents_per_day ?? undefined,
});

/** For people: `60 requests/min`, and `on demo: 5 requests/min`. */
export function rateWords({ concurrencyMax, byModel = {}, ...rates }: RateLimits): readonly string[] {
  return [
    ...(concurrencyMax === undefined ? [] : [`${concurrencyMax} at once`]),
    ...wordsOf(rates),
    ...Object.entries(byModel).map(([id, ofModel]) => `on ${id}: ${wordsOf((ofModel ?? {}) as Rates).join(', ')}`),
  ];
}

const wordsOf = (rates: Rates): readonly string[] =>
  (
    [
      [rates.requestsPerMinute, ' requests/min'],
      [rates.tokensPerMinute, ' tokens/min'],
      [rates.requestsPerDay, ' requests/day'],
      [rates.tokensPerDay, ' tokens/day'],
      [inDollars(rates.centsPerFiveMinutes), ' in five minutes'],
      [inDollars(rates.centsPerDay), ' a day'],
    ] as const
  ).flatMap(([most, unit]) => (most === undefined ? [] : [`${most}${unit}`]));

const inDollars = (cents: number | undefined): string | undefined =>
  cents === undefined ? undefined : centsText(cents);
