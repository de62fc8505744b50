import type { Capabilities } from '../../catalog/card-flags.ts';
import type { CountFormat, Dialect } from '../dialects/dialect.ts';

/** The capabilities on a model's card that apply to one API family. */
export type FamilyFlags = Capabilities['chat'] &
  Pick<Capabilities, 'vision' | 'reasoning'> &
  Partial<Pick<Capabilities['embeddings'], 'dimensions'>>;

/** Policy differences between the API families are fields here; policy code never tests for names. */
interface RoutePolicy {
  /** Name of the family in the ledger and in logs. */
  readonly api: string;
  /** The operation, in the terms of OpenTelemetry's conventions where they exist. */
  readonly operation: 'chat' | 'text_completion' | 'embeddings' | 'rerank' | 'count_tokens';
  /** Returns the card's part about this family (contracts decision 20). */
  flags(capabilities: Capabilities): FamilyFlags;
  /** §4.2.1(1): the meaning of an absent `max_tokens`: the card's default, what the window leaves, or a number. */
  readonly defaultMaxTokens: 'card' | 'window' | number;
  /** §4.2.1(4): whether a request that does not fit is retried once without `max_tokens`. */
  readonly retryWithoutMaxTokens: boolean;
  /** §4.2.5(3): the effect of an effort that is not a tier. */
  readonly unknownEffort: 'reject' | 'off';
}

/** An endpoint that generates answers. */
export interface InferenceRoute extends RoutePolicy {
  readonly kind: 'generate';
  readonly dialect: Dialect;
}

/** An endpoint that counts the tokens of a prompt: free of charge, nothing is generated. */
export interface CountingRoute extends RoutePolicy {
  readonly kind: 'count';
  readonly dialect: Dialect<CountFormat>;
}

export type Route = InferenceRoute | CountingRoute;
