import type { Capabilities } from '../../catalog/model.ts';
import type { CountFormat, Dialect } from '../dialects/dialect.ts';

/** What a model's card promises the clients of one API family. */
export type FamilyFlags = Capabilities['chat'] & Pick<Capabilities, 'vision' | 'reasoning'>;

/** Differences of policy between the API families are fields here, never names in the policy. */
interface RoutePolicy {
  /** Name of the family in the ledger and in logs. */
  readonly api: string;
  /** The part of the card that is about this family (contracts decision 20). */
  flags(capabilities: Capabilities): FamilyFlags;
  /** §4.2.1(1): what an absent `max_tokens` means: the card's default, what the window leaves, or a number. */
  readonly defaultMaxTokens: 'card' | 'window' | number;
  /** §4.2.1(4): whether a request that does not fit is tried once more without `max_tokens`. */
  readonly retryWithoutMaxTokens: boolean;
  /** §4.2.5(3): what an effort that is no tier does. */
  readonly unknownEffort: 'reject' | 'off';
}

/** An endpoint that generates. */
export interface InferenceRoute extends RoutePolicy {
  readonly kind: 'generate';
  readonly dialect: Dialect;
}

/** An endpoint that tells how long a prompt is: free of charge, and nothing is generated. */
export interface CountingRoute extends RoutePolicy {
  readonly kind: 'count';
  readonly dialect: Dialect<CountFormat>;
}

export type Route = InferenceRoute | CountingRoute;
