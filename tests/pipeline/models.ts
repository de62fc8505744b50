import type { Model } from '../../src/catalog/model.ts';
import { chat } from '../../src/dialects/chat/chat.ts';
import { decodeChatRequest } from '../../src/dialects/chat/request.ts';
import type { GenerationRequest } from '../../src/generation/request.ts';
import type { InferenceRoute } from '../../src/pipeline/route.ts';

/** A model that can do everything; tests take away what they are about. */
export const capableModel: Model = {
  id: 'capable',
  displayName: 'Capable',
  description: undefined,
  ownedBy: 'tests',
  contextLength: 8192,
  maxOutputTokens: 4096,
  prices: { input: 5_000_000n, output: 20_000_000n, cacheRead: 2_500_000n },
  sampling: 'honor',
  capabilities: {
    vision: true,
    tools: true,
    reasoning: true,
    chat: {
      supported: true,
      streaming: true,
      tools: true,
      toolStreaming: true,
      jsonObject: true,
      jsonSchema: true,
      jsonSchemaRefs: true,
      toolsWithResponseFormat: true,
      n: true,
      regex: true,
      grammar: true,
      logprobs: true,
      logitBias: true,
    },
    zdr: true,
    efforts: ['none', 'low', 'medium', 'high'],
    defaultEffort: 'none',
  },
};

export type ChatFlag = keyof Model['capabilities']['chat'];

export const withoutFlags = (...flags: readonly ChatFlag[]): Model => ({
  ...capableModel,
  capabilities: {
    ...capableModel.capabilities,
    chat: { ...capableModel.capabilities.chat, ...Object.fromEntries(flags.map((flag) => [flag, false])) },
  },
});

export const chatRoute: InferenceRoute = {
  api: 'chat',
  dialect: chat,
  defaultMaxTokens: 'card',
  retryWithoutMaxTokens: true,
  unknownEffort: 'reject',
};

/** The policy of the messages and responses families (§4.2.1(4), §4.2.5(3)). */
export const strictRoute: InferenceRoute = { ...chatRoute, retryWithoutMaxTokens: false, unknownEffort: 'off' };

/** A chat request with further fields, given as the client writes them. */
export const chatRequest = (fields: Readonly<Record<string, unknown>> = {}): GenerationRequest =>
  decodeChatRequest({ model: 'capable', messages: [{ role: 'user', content: 'x' }], ...fields });
