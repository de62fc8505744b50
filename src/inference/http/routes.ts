import { featureFlags, generatesText, type Capabilities } from '../../catalog/card-flags.ts';
import { chat } from '../dialects/chat/chat.ts';
import { completions } from '../dialects/completions/completions.ts';
import { embeddings } from '../dialects/embeddings/embeddings.ts';
import { messageCount, messages } from '../dialects/messages/messages.ts';
import { rerank } from '../dialects/rerank/rerank.ts';
import { responses, responsesInputTokens } from '../dialects/responses/responses.ts';
import { camel } from '../../platform/camel-case.ts';
import type { FamilyFlags, Route } from '../pipeline/route.ts';

/** Makes the flags of a card once, not for each request: cards are as few as models. */
function onceForEach(make: (capabilities: Capabilities) => FamilyFlags): (capabilities: Capabilities) => FamilyFlags {
  const made = new WeakMap<Capabilities, FamilyFlags>();
  return (capabilities) => {
    let flags = made.get(capabilities);
    if (flags === undefined) made.set(capabilities, (flags = make(capabilities)));
    return flags;
  };
}

/** Adds the card's flags for all families to those of one family. */
const withGeneral = (flags: Capabilities['chat'], { vision, reasoning }: Capabilities): FamilyFlags => ({
  ...flags,
  vision,
  reasoning,
});

/** Every model that generates text can continue texts; the card has no separate flags for that, and tools need messages. */
const ofTexts = (capabilities: Capabilities): Capabilities['chat'] => ({
  ...capabilities.chat,
  supported: generatesText(capabilities),
  tools: false,
  toolStreaming: false,
  toolsWithResponseFormat: false,
});

/** Tasks generate no text, so only these flags of the card count. */
const taskFlags = (supported: boolean, dimensions: boolean): FamilyFlags => ({ ...noFlags, supported, dimensions });
const noFlags = Object.fromEntries(featureFlags.map((name) => [camel(name), false])) as object as FamilyFlags;

const taskPolicy = { defaultMaxTokens: 0, retryWithoutMaxTokens: false, unknownEffort: 'off' } as const;

/** The card's flags for this family replace those for chat. */
const messagesFlags = onceForEach((capabilities) => ({ ...capabilities.chat, ...capabilities.messages }));

const messagesPolicy = {
  flags: messagesFlags,
  // `max_tokens` is required; one beyond the window is treated as absent (§4.2.1(3)).
  defaultMaxTokens: 'window',
  // §4.2.1(4)
  retryWithoutMaxTokens: false,
  unknownEffort: 'reject',
} as const;

/** The card lists where this family differs from chat completions; the rest is the same. */
const responsesFlags = onceForEach((capabilities) => {
  const { supported, streaming, tools, textFormats } = capabilities.responses;
  const own = {
    supported,
    streaming,
    tools,
    jsonObject: textFormats.includes('json_object'),
    jsonSchema: textFormats.includes('json_schema'),
    // Specification §2.3 has no separate flag: a model that streams and calls tools streams calls.
    toolStreaming: tools && streaming,
  };
  return withGeneral({ ...capabilities.chat, ...own }, capabilities);
});

const responsesPolicy = {
  flags: responsesFlags,
  defaultMaxTokens: 'window',
  retryWithoutMaxTokens: false,
  unknownEffort: 'off',
} as const;

/**
 * The API families (contracts §1.0, "Routes"), by path; a new one is an entry here and a folder in `dialects/`. Policy that differs between
 * them belongs here, and only here.
 */
export const inferenceRoutes: ReadonlyMap<string, Route> = new Map<string, Route>([
  [
    '/v1/chat/completions',
    {
      kind: 'generate',
      api: 'chat',
      operation: 'chat',
      dialect: chat,
      flags: onceForEach((capabilities) => withGeneral(capabilities.chat, capabilities)),
      defaultMaxTokens: 'card',
      retryWithoutMaxTokens: true,
      unknownEffort: 'reject',
    },
  ],
  [
    '/v1/completions',
    {
      kind: 'generate',
      api: 'completions',
      operation: 'text_completion',
      dialect: completions,
      flags: onceForEach((capabilities) => withGeneral(ofTexts(capabilities), capabilities)),
      // Contracts decision 7.
      defaultMaxTokens: 16,
      retryWithoutMaxTokens: false,
      unknownEffort: 'reject',
    },
  ],
  ['/v1/messages', { kind: 'generate', api: 'messages', operation: 'chat', dialect: messages, ...messagesPolicy }],
  [
    '/v1/messages/count_tokens',
    { kind: 'count', api: 'messages_count', operation: 'count_tokens', dialect: messageCount, ...messagesPolicy },
  ],
  [
    '/v1/embeddings',
    {
      kind: 'generate',
      api: 'embeddings',
      operation: 'embeddings',
      dialect: embeddings,
      flags: onceForEach(({ embeddings: { supported, dimensions } }) => taskFlags(supported, dimensions)),
      ...taskPolicy,
    },
  ],
  [
    '/v1/rerank',
    {
      kind: 'generate',
      api: 'rerank',
      operation: 'rerank',
      dialect: rerank,
      flags: onceForEach(({ rerank: { supported } }) => taskFlags(supported, false)),
      ...taskPolicy,
    },
  ],
  ['/v1/responses', { kind: 'generate', api: 'responses', operation: 'chat', dialect: responses, ...responsesPolicy }],
  [
    '/v1/responses/input_tokens',
    {
      kind: 'count',
      api: 'responses_count',
      operation: 'count_tokens',
      dialect: responsesInputTokens,
      ...responsesPolicy,
    },
  ],
]);
