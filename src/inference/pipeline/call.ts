import type { Billing } from '../../billing/billing.ts';
import type { Admitted, Limits } from '../../billing/rate-limits/rate-limits.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { Headers } from '../dialects/dialect.ts';
import type { Constraints } from './constraints.ts';
import type { PromptCounts } from './count.ts';
import type { ReasoningKeys } from './reasoning-keys.ts';
import type { RequestFacts } from './request-facts.ts';
import type { FileParts } from './request-files.ts';
import type { InferenceRoute, Route } from './route.ts';
import type { Lease } from './runtime-config.ts';
import type { KeptItems } from './stored-items.ts';
import type { Warnings } from './warnings.ts';

/** A request with a known caller and a parsed body, and what is recorded about it while it is checked. */
export interface Call<On extends Route = InferenceRoute> extends RequestFacts {
  readonly route: On;
  readonly headers: Headers;
  readonly signal: StopSignal;
  /** The configuration that the request sees. */
  readonly lease: Pick<Lease, 'runtimeConfig' | 'poolOf'>;
  /** Set when no limit has refused it. */
  admitted: Admitted | undefined;
  /** Time spent waiting for engines and for servers of images and documents. */
  engineMs: number;
  /** What a count leaves out, which makes no order. */
  warnings?: Warnings;
  /** Reserves memory beyond that of the body, for files; throws `backend_at_capacity` when there is none left. */
  holdBytes(bytes: number): void;
}

/** The services that check requests and prepare them. */
export interface ServeServices {
  readonly fileParts: FileParts;
  readonly constraints: Constraints;
  readonly promptCounts: PromptCounts;
  readonly reasoningKeys: ReasoningKeys;
  readonly items: Pick<KeptItems, 'find'>;
  readonly limits: Pick<Limits, 'admit' | 'coveringPlan'>;
  readonly billing: Pick<Billing, 'check'>;
}
