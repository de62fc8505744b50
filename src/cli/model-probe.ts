import type { EngineRequest } from '../generation/request.ts';
import { createLlamaEngine } from '../inference/engines/llama/engine.ts';

export interface Probe {
  readonly text: string;
  readonly tokensPerSecond: number;
}

/** What a model says when it is loaded and asked; its speed alone on this machine. Rejects when it cannot be loaded. */
export async function probeModel(modelFile: string, contextLength: number, hasChatTemplate: boolean): Promise<Probe> {
  const engine = createLlamaEngine({
    name: 'probe',
    modelFile: Promise.resolve(modelFile),
    contextLength,
    slots: 1,
    defaultSystem: 'template',
    log: () => {},
  });
  try {
    await engine.ready;
    let text = '';
    let tokens = 0;
    let firstAtMs: number | undefined;
    await engine.generate(question(hasChatTemplate), AbortSignal.timeout(probeTimeoutMs), (events) => {
      firstAtMs ??= performance.now();
      for (const event of events) {
        if (event.type === 'text' || event.type === 'reasoning') text += event.text;
        if (event.type === 'usage') tokens = event.usage.completionTokens ?? 0;
      }
      return true;
    });
    const seconds = (performance.now() - (firstAtMs ?? 0)) / 1000;
    return { text, tokensPerSecond: seconds > 0 ? tokens / seconds : 0 };
  } finally {
    await engine.close();
  }
}

const probeTimeoutMs = 300_000;

const question = (isChat: boolean): EngineRequest => ({
  id: '0'.repeat(32),
  prompt: isChat
    ? { type: 'messages', messages: [{ role: 'user', content: [{ type: 'text', text: 'Say hello' }] }] }
    : { type: 'texts', prompts: ['Hello'] },
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
