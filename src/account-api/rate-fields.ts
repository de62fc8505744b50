/** What a key or an account may use in a time: how the API shows and sets it. */
import Type from 'typebox';
import type { Static } from 'typebox';

import { limitCentsMax, limitMax, listMax } from '../accounts/key-limits.ts';
import type { RateLimits, Rates } from '../accounts/key-limits.ts';
import type { ModelConfig } from '../config/config.ts';
import { ApiError } from '../platform/errors.ts';
import type { ModelBudgetSettings } from './limit-object.ts';
import { nullable } from './wire.ts';

const rate = Type.Integer({ minimum: 1, maximum: limitMax });
const cents = (description: string) => Type.Integer({ minimum: 1, maximum: limitCentsMax, description });

const fields = {
  requests_per_minute: nullable(rate),
  tokens_per_minute: nullable(rate),
  requests_per_day: nullable(rate),
  tokens_per_day: nullable(rate),
  cents_per_five_minutes: nullable(
    cents('What its requests may cost in five minutes, so that a program that repeats itself ends.'),
  ),
  cents_per_day: nullable(cents('What its requests may cost in a day; a request that runs may pass it.')),
};
type Field = keyof typeof fields;

/** The field of each limit. */
const fieldOf: Readonly<Record<keyof Rates, Field>> = {
  requestsPerMinute: 'requests_per_minute',
  tokensPerMinute: 'tokens_per_minute',
  requestsPerDay: 'requests_per_day',
  tokensPerDay: 'tokens_per_day',
  centsPerFiveMinutes: 'cents_per_five_minutes',
  centsPerDay: 'cents_per_day',
};
const pairs = Object.entries(fieldOf) as readonly (readonly [keyof Rates, Field])[];

/** Returns a value for each field. */
export const byField = <Value>(valueOf: (name: keyof Rates) => Value): Record<Field, Value> =>
  Object.fromEntries(pairs.map(([name, field]) => [field, valueOf(name)])) as Record<Field, Value>;

/** Fields that are shown. */
export const rateSchema = {
  ...fields,
  limits_by_model: Type.Array(Type.Object({ model: Type.String(), ...fields }), {
    description: 'Limits of single models, in addition to those of all together; ids in lower case.',
  }),
};

const settings = Type.Partial(Type.Object(fields)).properties;

/** Fields that can be set; the list of models replaces the earlier one. */
export const rateSettings = {
  ...settings,
  limits_by_model: Type.Optional(
    Type.Array(
      Type.Object(
        { model: Type.String({ minLength: 1, maxLength: 128, pattern: '^\\S+$' }), ...settings },
        { additionalProperties: false },
      ),
      { maxItems: listMax, description: 'Limits of single models; replaces the earlier list.' },
    ),
  ),
};
type RateSettings = { -readonly [Name in keyof typeof rateSettings]?: Static<(typeof rateSettings)[Name]> };

const shown = (rates: { readonly [Name in keyof Rates]: Rates[Name] | null }) => byField((name) => rates[name] ?? null);

export const ratesShown = ({ byModel = {}, ...all }: RateLimits) => ({
  ...shown(all),
  limits_by_model: Object.entries(byModel).map(([model, rates]) => ({ model, ...shown(rates ?? {}) })),
});

/** The change of limits that is asked for, without what is left out. */
export function ratesAskedFor(body: RateSettings, known: RateLimits) {
  const all = Object.fromEntries(
    pairs.flatMap(([name, field]) => (body[field] === undefined ? [] : [[name, body[field]]])),
  );
  const models = body.limits_by_model;
  if (models === undefined) return all;
  const gone = Object.keys(known.byModel ?? {}).map((id) => [id, null] as const);
  const there = models.map(({ model, ...rates }) => {
    const each = Object.fromEntries(pairs.map(([name, field]) => [name, rates[field] ?? null]));
    return [model.toLowerCase(), each] as const;
  });
  return { ...all, byModel: Object.fromEntries([...gone, ...there]) };
}

/**
 * Refuses models that the configuration does not have. With an account, a model that is dedicated to others counts as one that does not
 * exist.
 */
export function checkModels(
  body: { readonly allowed_models?: readonly string[] | null } & Pick<RateSettings, 'limits_by_model'> &
    ModelBudgetSettings,
  config: () => { readonly models: readonly ModelConfig[] },
  accountId?: string,
): void {
  const isUsable = ({ dedicatedTo }: ModelConfig): boolean =>
    accountId === undefined || dedicatedTo.length === 0 || dedicatedTo.includes(accountId);
  const named = {
    allowed_models: body.allowed_models,
    limits_by_model: body.limits_by_model?.map(({ model }) => model),
    budgets_by_model: body.budgets_by_model?.map(({ model }) => model),
  };
  for (const [field, list] of Object.entries(named)) {
    if (list === undefined || list === null) continue;
    const ids = new Set(
      config()
        .models.filter(isUsable)
        .map(({ id }) => id.toLowerCase()),
    );
    const unknown = list.findIndex((id) => !ids.has(id.toLowerCase()));
    if (unknown >= 0)
      throw new ApiError('unsupported_value', 'The configuration has no model of this id.', {
        param: `${field}[${unknown}]`,
      });
  }
}
