import { modelDefaults } from '../catalog/model-defaults.ts';
import type { Model, ModelTiers } from '../catalog/model.ts';
import type { ModelConfig } from '../config/config.ts';
import type { SamplingDefaults } from '../generation/sampling-defaults.ts';

/** `undefined`: it has none besides `default`. */
function tiersOf({ priority, flex, batch }: ModelConfig['tiers']): ModelTiers | undefined {
  if (priority === undefined && flex === undefined && batch === undefined) return undefined;
  return {
    ...(priority && { priority: { price: priority.priceMultiple, reservedSlots: priority.reservedSlots } }),
    ...(flex && { flex: { price: flex.priceMultiple, waitMs: flex.waitMs } }),
    ...(batch && { batch: { price: batch.priceMultiple } }),
  };
}

/** The catalog entry of a model of the configuration. `inFile`: the defaults that the model's own file states. */
export function modelOf(config: ModelConfig, inFile?: SamplingDefaults): Model {
  return {
    id: config.id,
    displayName: config.displayName,
    description: config.description,
    tier: config.tier,
    ownedBy: config.ownedBy,
    contextLength: config.contextLength,
    maxOutputTokens: config.maxOutputTokens,
    prices: config.pricing,
    tiers: tiersOf(config.tiers),
    sampling: config.sampling,
    defaults: modelDefaults(config.defaults, inFile),
    capabilities: config.capabilities,
    zdrCapabilities: config.zdrCapabilities,
    fallback: config.fallback.length === 0 ? undefined : config.fallback,
    hedge: config.hedge.after,
    deprecationDate: config.deprecationDate,
    successor: config.successor,
    leadsToSuccessor: config.leadsToSuccessor,
    aliases: config.aliases.length === 0 ? undefined : config.aliases,
    adapterOf: config.adapterOf,
    dedicatedTo: config.dedicatedTo.length === 0 ? undefined : new Set(config.dedicatedTo),
  };
}
