import type { Capabilities } from '../../../src/catalog/card-flags.ts';
import type { Model } from '../../../src/catalog/model.ts';
import { fullCapabilities } from '../pipeline/models.ts';

const capabilities: Capabilities = { ...fullCapabilities, defaultEffort: 'medium', preservesThinking: true };

/** A model that can do everything. */
export const model: Model = {
  id: 'able',
  displayName: 'Able',
  description: 'Can do everything.',
  tier: 'large',
  ownedBy: 'tokenhouse',
  contextLength: 8192,
  maxOutputTokens: 4096,
  prices: { input: 5_000_000n, output: 20_000_000n, cacheRead: 1_499_999n },
  sampling: 'honor',
  defaults: { system: undefined, sampling: {} },
  capabilities,
  zdrCapabilities: capabilities,
  deprecationDate: '2999-01-01',
};
