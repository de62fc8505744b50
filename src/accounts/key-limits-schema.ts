import Type from 'typebox';

import { eachOrNull, texts } from './request-schema.ts';

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
  requestsPerMinute: Type.Integer(),
  /** Prompt and completion tokens together. */
  tokensPerMinute: Type.Integer(),
};

/** The restrictions of a key, other than models. */
export const keyLimitsSchema = Type.Partial(Type.Object(limitFields));

/** null removes a limit; omitted limits stay. */
export const limitsChangeSchema = Type.Partial(Type.Object(eachOrNull(limitFields)));
