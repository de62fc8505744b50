import Type from 'typebox';

import { eachOrNull, orNull, text, texts } from './request-schema.ts';

/** What may be used in a time: of all models together, or of one. Fixed windows, which begin at times of their own. */
const rateFields = {
  requestsPerMinute: Type.Integer(),
  /** Prompt and completion tokens together. */
  tokensPerMinute: Type.Integer(),
  requestsPerDay: Type.Integer(),
  tokensPerDay: Type.Integer(),
  /** What requests may cost: it ends a program that repeats itself. */
  centsPerFiveMinutes: Type.Integer(),
  centsPerDay: Type.Integer(),
};

/** By the model's id, in lower case. */
const byModel = Type.Record(text, orNull(Type.Partial(Type.Object(eachOrNull(rateFields)))));

const limitFields = {
  /** Paths of the inference host, such as `/v1/messages`, including everything below them. The model list is open to every key. */
  endpoints: texts,
  /** Allowed client addresses: single ones, or ranges such as `10.0.0.0/8`. */
  addresses: texts,
  /** Only requests with `Service-ZDR: required`. */
  zdrOnly: Type.Boolean(),
  /** The service tier of requests that name none: `priority`, `default` or `flex`. */
  tier: Type.String(),
  /** The tiers that it may use besides `default`; left out: all. */
  tiers: texts,
  /** Its account's plan pays for its requests (money.md, "Plans"). */
  planKey: Type.Boolean(),
  /** Maximum concurrent requests. */
  concurrencyMax: Type.Integer(),
  ...rateFields,
  byModel,
  /** What one conversation may cost. */
  sessionCents: Type.Integer(),
};

/** The restrictions of a key, other than models. */
export const keyLimitsSchema = Type.Partial(Type.Object(limitFields));

/** The limits on all requests of an account together. */
export const accountRatesSchema = Type.Partial(
  Type.Object(eachOrNull({ concurrencyMax: Type.Integer(), ...rateFields, byModel })),
);

/** null removes a limit; omitted limits stay, also those of a model. */
export const limitsChangeSchema = Type.Partial(Type.Object(eachOrNull(limitFields)));
