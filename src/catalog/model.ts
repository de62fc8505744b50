import type { Tier } from '../generation/tier.ts';
import type { Capabilities } from './card-flags.ts';
import type { ModelDefaults } from './model-defaults.ts';
import type { Prices } from './pricing.ts';

/** A service tier of a model. */
export interface ModelTier {
  /** Its price, in ten-thousandths of that of `default`. */
  readonly price: bigint;
  /** How long its requests may wait for a slot; absent: as long as others. */
  readonly waitMs?: number | undefined;
  /** Slots that it keeps from tiers after it; absent: none. */
  readonly reservedSlots?: number | undefined;
}

export type ModelTiers = Readonly<Partial<Record<Exclude<Tier, 'default'>, ModelTier>>>;

/** One entry of the catalog: the facts behind a model's card. */
export interface Model {
  readonly id: string;
  readonly displayName: string;
  readonly description: string | undefined;
  readonly tier: string | undefined;
  readonly ownedBy: string;
  /** Maximum prompt and completion tokens together. */
  readonly contextLength: number;
  /** Maximum completion tokens; null: bounded by the window only. */
  readonly maxOutputTokens: number | null;
  /** List prices; an account may have others. */
  readonly prices: Prices;
  /** The service tiers that it has besides `default`; absent: none. */
  readonly tiers?: ModelTiers | undefined;
  /** Whether the four sampling fields reach the model (specification part 1). */
  readonly sampling: 'honor' | 'ignore' | 'fixed';
  /** Shown on the card too. */
  readonly defaults: ModelDefaults;
  /** Shown on the card: for requests without `Service-ZDR`. */
  readonly capabilities: Capabilities;
  /** For requests with `Service-ZDR` (§4.2.3(5)); the same if the model offers no zero data retention. */
  readonly zdrCapabilities: Capabilities;
  /** Ids of the models that may serve a request when no backend of this one can; absent: none. */
  readonly fallback?: readonly string[] | undefined;
  /** Milliseconds without content before a second backend is tried; `p95`: what 95 of 100 requests do not exceed; absent: never. */
  readonly hedge?: number | 'p95' | undefined;
  /** `YYYY-MM-DD`: the model is retired from 00:00:00 UTC of this day (contracts decision 25). */
  readonly deprecationDate: string | undefined;
  /** Id of the model that is to be used instead after its retirement. */
  readonly successor?: string | undefined;
  /** Whether its names lead to the successor from its retirement on. */
  readonly leadsToSuccessor?: boolean | undefined;
  /** Other names of it in requests; absent: none. */
  readonly aliases?: readonly Alias[] | undefined;
  /** The name that the request used instead of the id. */
  readonly askedAs?: string | undefined;
  /** What the answer says instead of the id. */
  readonly answersAs?: string | undefined;
  /** The id of the model, if the card has another name. */
  readonly aliasOf?: string | undefined;
  /** The id of the model whose adapter it is. */
  readonly adapterOf?: string | undefined;
  /** The only accounts that may use it; absent: every account may. */
  readonly dedicatedTo?: ReadonlySet<string> | undefined;
}

export interface Alias {
  readonly name: string;
  /** Whether the catalog has a card of this name. */
  readonly isListed: boolean;
  /** What the answer to a request of this name says: the model's id or this name. */
  readonly answers: 'model' | 'alias';
}

/** The model of a request that named it so, with the name that the answer says. `own`: a name that only the caller's account has for it. */
export function askedAs(model: Model, name: string, own: Pick<Alias, 'name' | 'answers'> | undefined): Model {
  const alias = own ?? model.aliases?.find((each) => each.name.toLowerCase() === name.toLowerCase());
  if (alias === undefined) return model;
  return { ...model, askedAs: alias.name, ...(alias.answers === 'alias' ? { answersAs: alias.name } : {}) };
}

/** A model and those of its other names that have a card. */
export const underItsNames = (model: Model): readonly Model[] => [
  model,
  ...(model.aliases ?? []).filter(({ isListed }) => isListed).map(({ name }) => underName(model, name)),
];

/** The model as its card says it under another name. */
export const underName = (model: Model, name: string): Model => ({
  ...model,
  id: name,
  displayName: name,
  aliasOf: model.id,
});

/** The capabilities that apply to a request: flags may depend on the ZDR partition (§4.2.3(5)). */
export const capabilitiesFor = (model: Pick<Model, 'capabilities' | 'zdrCapabilities'>, zdr: boolean): Capabilities =>
  zdr ? model.zdrCapabilities : model.capabilities;
