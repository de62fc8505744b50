import Type from 'typebox';

import { eachOrNull, texts } from './request-schema.ts';

const limitFields = {
  /** Paths of the inference host, such as `/v1/messages`, each with everything below it. The model list is open to every key. */
  endpoints: texts,
  /** Addresses that requests may come from: single ones, or ranges such as `10.0.0.0/8`. */
  addresses: texts,
  /** Only requests with `Service-ZDR: required`. */
  zdrOnly: Type.Boolean(),
  /** The plan of its account pays for its requests (money.md, "Plans"). */
  planKey: Type.Boolean(),
  /** Requests that may run at the same time. */
  concurrencyMax: Type.Integer(),
  requestsPerMinute: Type.Integer(),
  /** Tokens of prompts and answers together. */
  tokensPerMinute: Type.Integer(),
};

/** The restrictions of a key, besides models. */
export const keyLimitsSchema = Type.Partial(Type.Object(limitFields));

/** null removes a limit, and what is left out stays. */
export const limitsChangeSchema = Type.Partial(Type.Object(eachOrNull(limitFields)));
