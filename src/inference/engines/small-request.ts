import { randomUUID } from 'node:crypto';
import type { EngineRequest } from '../../generation/request.ts';

/** Returns a short question for checks, with only fields that every server accepts; the caller changes what it needs. */
export const smallRequest = ({
  isChat = true,
  text = isChat ? 'Say hello' : 'Hello',
}: { readonly isChat?: boolean; readonly text?: string } = {}): EngineRequest => ({
  id: randomUUID().replaceAll('-', ''),
  prompt: isChat
    ? { type: 'messages', messages: [{ role: 'user', content: [{ type: 'text', text }] }] }
    : { type: 'texts', prompts: [text] },
  choices: 1,
  maxTokens: 32,
  sampling: {
    ...{ temperature: 0, topP: undefined, topK: undefined, minP: undefined, seed: undefined },
    ...{ presencePenalty: undefined, frequencyPenalty: undefined, repetitionPenalty: undefined },
  },
  stop: [],
  tools: [],
  toolChoice: { type: 'none' },
  parallelToolCalls: true,
  constraint: undefined,
  effort: 'none',
  reasoningForm: 'separate',
  reasoningRoomTokens: 0,
  logprobs: undefined,
  logitBias: undefined,
  cacheScope: 'probe',
  retain: false,
});
