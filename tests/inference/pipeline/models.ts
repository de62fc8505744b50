import {
  familyFlags,
  fieldOf,
  generalFlags,
  unlistedFlags,
  type Capabilities,
  type CardFlag,
} from '../../../src/catalog/card-flags.ts';
import type { Model } from '../../../src/catalog/model.ts';
import { decodeChatRequest } from '../../../src/inference/dialects/chat/request.ts';
import type { GenerationRequest } from '../../../src/generation/request.ts';
import { inferenceRoutes } from '../../../src/inference/http/routes.ts';
import type { FamilyFlags, InferenceRoute } from '../../../src/inference/pipeline/route.ts';

type Flags = Readonly<Record<string, CardFlag>>;

/** Each flag is the same, and each list has all of its values or none. */
const each = (flags: Flags, is: boolean): object =>
  Object.fromEntries(
    Object.entries(flags).map(([key, flag]) => {
      const own = flag.values === undefined ? is : is ? Object.keys(flag.values) : [];
      return [fieldOf(key, flag), own];
    }),
  );

const flagsOf = (is: boolean) =>
  ({
    ...each(generalFlags, is),
    chat: each({ ...familyFlags.chat_completions, ...unlistedFlags }, is),
    responses: each(familyFlags.responses, is),
    messages: each(familyFlags.messages, is),
    // A model that writes does not measure.
    embeddings: each(familyFlags.embeddings, false),
    rerank: each(familyFlags.rerank, false),
  }) as Pick<
    Capabilities,
    'vision' | 'tools' | 'reasoning' | 'chat' | 'responses' | 'messages' | 'embeddings' | 'rerank'
  >;

/** Everything that a model which writes can do. */
export const fullCapabilities: Capabilities = {
  ...flagsOf(true),
  zdr: true,
  efforts: ['none', 'low', 'medium', 'high'],
  defaultEffort: 'none',
  reasoningRoomTokens: 0,
  hidesReasoning: false,
  inlinesReasoning: false,
  preservesThinking: false,
};

const nothing = flagsOf(false);

/** Text in, text out, streamed or not. */
export const textCapabilities: Capabilities = {
  ...fullCapabilities,
  ...nothing,
  chat: { ...nothing.chat, supported: true, streaming: true },
  responses: { ...nothing.responses, supported: true, streaming: true, textFormats: ['text'] },
  messages: { ...nothing.messages, supported: true, streaming: true },
  zdr: false,
  efforts: ['none'],
  defaultEffort: 'none',
};

/** A model that can do everything; tests take away what they are about. */
export const capableModel: Model = {
  id: 'capable',
  displayName: 'Capable',
  description: undefined,
  tier: undefined,
  ownedBy: 'tests',
  contextLength: 8192,
  maxOutputTokens: 4096,
  prices: { input: 5_000_000n, output: 20_000_000n, cacheRead: 2_500_000n },
  sampling: 'honor',
  defaults: { system: undefined, sampling: {} },
  capabilities: fullCapabilities,
  zdrCapabilities: fullCapabilities,
  deprecationDate: undefined,
};

export type ChatFlag = keyof Model['capabilities']['chat'];

export const withoutFlags = (...flags: readonly ChatFlag[]): Model => {
  const chat = { ...fullCapabilities.chat, ...Object.fromEntries(flags.map((flag) => [flag, false])) };
  const capabilities = { ...fullCapabilities, chat };
  return { ...capableModel, capabilities, zdrCapabilities: capabilities };
};

export const chatRoute = inferenceRoutes.get('/v1/chat/completions') as InferenceRoute;

export const chatFlags = (model: Model): FamilyFlags => chatRoute.flags(model.capabilities);

/** The policy of the messages and responses families (§4.2.1(4), §4.2.5(3)). */
export const strictRoute: InferenceRoute = { ...chatRoute, retryWithoutMaxTokens: false, unknownEffort: 'off' };

/** A chat request with further fields, given as the client writes them. */
export const chatRequest = (fields: Readonly<Record<string, unknown>> = {}): GenerationRequest =>
  decodeChatRequest({ model: 'capable', messages: [{ role: 'user', content: 'x' }], ...fields });
