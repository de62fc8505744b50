import type { EngineRequest, Message } from './request.ts';

/** What a request may ask of a backend beyond plain text, and a backend may turn out not to support. */
export const featureNames = [
  'tools',
  'tool_streaming',
  'json_object',
  'json_schema',
  'regex',
  'grammar',
  'vision',
  'reasoning',
  'logprobs',
  'n',
  'token_ids',
  'min_p',
  'top_k',
] as const;

export type FeatureName = (typeof featureNames)[number];

/** Whether a request needs a feature. */
const isNeeded: Readonly<Record<FeatureName, (request: EngineRequest) => boolean>> = {
  tools: ({ tools }) => tools.length > 0,
  // Backends are always asked to stream.
  tool_streaming: ({ tools }) => tools.length > 0,
  json_object: ({ constraint }) => constraint?.source.type === 'json-object',
  json_schema: ({ constraint }) => constraint?.source.type === 'json-schema',
  regex: ({ constraint }) => constraint?.source.type === 'regex',
  grammar: ({ constraint }) => constraint?.source.type === 'grammar',
  vision: ({ prompt }) => prompt.type === 'messages' && prompt.messages.some(hasImage),
  reasoning: ({ effort }) => effort !== 'none',
  logprobs: ({ logprobs }) => logprobs !== undefined,
  n: ({ choices }) => choices > 1,
  token_ids: ({ tokens }) => tokens?.returnsIds === true,
  min_p: ({ sampling }) => sampling.minP !== undefined,
  top_k: ({ sampling }) => sampling.topK !== undefined,
};

const hasImage = ({ content }: Message): boolean =>
  content.some(({ type }) => type === 'image' || type === 'image-url');

/** The first feature that the request needs and the backend does not support. */
export const lackedBy = (request: EngineRequest, lacks: readonly FeatureName[]): FeatureName | undefined =>
  lacks.find((name) => isNeeded[name](request));
