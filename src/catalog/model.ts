import type { Capabilities } from './card-flags.ts';
import type { ModelDefaults } from './model-defaults.ts';
import type { Prices } from './pricing.ts';

/** One entry of the catalog: the facts behind a model's card. */
export interface Model {
  readonly id: string;
  readonly displayName: string;
  readonly description: string | undefined;
  readonly tier: string | undefined;
  readonly ownedBy: string;
  /** Tokens of prompt and answer together. */
  readonly contextLength: number;
  /** Cap on the answer; null: bounded by the window only. */
  readonly maxOutputTokens: number | null;
  /** List prices; an account may have others. */
  readonly prices: Prices;
  /** Which of the four sampling fields reach the model (specification part 1). */
  readonly sampling: 'honor' | 'ignore' | 'fixed';
  /** Shown on the card too. */
  readonly defaults: ModelDefaults;
  /** Shown on the card: for requests without `Service-ZDR`. */
  readonly capabilities: Capabilities;
  /** For requests with it (§4.2.3(5)); the same where the model offers no zero data retention. */
  readonly zdrCapabilities: Capabilities;
  /** Ids of the models that may serve a request when no backend of this one can; absent: none. */
  readonly fallback?: readonly string[] | undefined;
  /** A second backend is asked after so many milliseconds without content, or after what 95 of 100 requests do not exceed; absent: never. */
  readonly hedge?: number | 'p95' | undefined;
  /** `YYYY-MM-DD`: from 00:00:00 UTC of this day on the model is gone (contracts decision 25). */
  readonly deprecationDate: string | undefined;
  /** The accounts that have it to themselves; absent: every account has it. */
  readonly dedicatedTo?: ReadonlySet<string> | undefined;
}

/** What a request may use: flags may depend on the ZDR partition (§4.2.3(5)). */
export const capabilitiesFor = (model: Pick<Model, 'capabilities' | 'zdrCapabilities'>, zdr: boolean): Capabilities =>
  zdr ? model.zdrCapabilities : model.capabilities;
