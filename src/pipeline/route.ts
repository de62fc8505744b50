import type { Dialect } from '../dialects/dialect.ts';

/** One inference endpoint. Differences of policy between the API families are fields here, never names in the policy. */
export interface InferenceRoute {
  /** Name of the family in the ledger and in logs. */
  readonly api: string;
  readonly dialect: Dialect;
  /** §4.2.1(1): what an absent `max_tokens` means: the card's default, or what the window leaves. */
  readonly defaultMaxTokens: 'card' | 'window';
  /** §4.2.1(4): whether a request that does not fit is tried once more without `max_tokens`. */
  readonly retryWithoutMaxTokens: boolean;
  /** §4.2.5(3): what an effort that is no tier does. */
  readonly unknownEffort: 'reject' | 'off';
}
