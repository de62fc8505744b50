import type { Capabilities } from '../../../src/catalog/card-flags.ts';
import type { Model } from '../../../src/catalog/model.ts';
import { fullCapabilities, textCapabilities } from '../pipeline/models.ts';

const capabilities: Capabilities = { ...fullCapabilities, defaultEffort: 'medium', preservesThinking: true };

/** A model that can do everything that a model which writes can do. */
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

const silent: Capabilities = {
  ...textCapabilities,
  chat: { ...textCapabilities.chat, supported: false, streaming: false },
  responses: { ...textCapabilities.responses, supported: false, streaming: false, textFormats: [] },
  messages: { ...textCapabilities.messages, supported: false, streaming: false },
};
const measuring = (id: string, flags: Pick<Capabilities, 'embeddings' | 'rerank'>): Model => {
  const own = { ...silent, ...flags };
  return { ...model, id, capabilities: own, zdrCapabilities: own };
};

/** One for each inference route. */
export const models: readonly Model[] = [
  model,
  measuring('embeds', { embeddings: { supported: true, dimensions: true }, rerank: { supported: false } }),
  measuring('ranks', { embeddings: { supported: false, dimensions: false }, rerank: { supported: true } }),
];
