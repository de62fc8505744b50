import type { Engine } from '../inference/engines/engine.ts';
import { createLlamaEngine } from '../inference/engines/llama/engine.ts';
import { smallRequest } from '../inference/engines/small-request.ts';
import { ApiError } from '../platform/errors.ts';

export interface Probe {
  readonly text: string;
  /** It thinks before it answers. */
  readonly reasons: boolean;
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
    return await sayHello(engine, hasChatTemplate);
  } finally {
    await engine.close();
  }
}

/** What any engine says to a short question, and how fast. Rejects with its failure. */
export async function sayHello(engine: Engine, isChat = true): Promise<Probe> {
  let text = '';
  let reasons = false;
  let tokens = 0;
  let firstAtMs: number | undefined;
  await engine.generate(smallRequest({ isChat }), AbortSignal.timeout(probeTimeoutMs), (events) => {
    firstAtMs ??= performance.now();
    for (const event of events) {
      if (event.type === 'text' || event.type === 'reasoning') text += event.text;
      if (event.type === 'reasoning') reasons = true;
      if (event.type === 'usage') tokens = event.usage.completionTokens ?? 0;
    }
    return true;
  });
  const seconds = (performance.now() - (firstAtMs ?? 0)) / 1000;
  return {
    text,
    reasons: reasons || /^\s*<think(ing)?>/.test(text),
    tokensPerSecond: seconds > 0 ? tokens / seconds : 0,
  };
}

/** Whether it takes functions: many servers refuse them unless they were started with a parser for the model. */
export async function takesTools(engine: Engine): Promise<boolean> {
  const request = { ...smallRequest(), maxTokens: 1, tools: [weather], toolChoice: { type: 'auto' } as const };
  try {
    await engine.generate(request, AbortSignal.timeout(probeTimeoutMs), () => true);
    return true;
  } catch (error) {
    // A server that has failed or gone says nothing about functions.
    if (error instanceof ApiError && (error.type === 'invalid_request_error' || error.code === 'backend_http_error'))
      return false;
    throw error;
  }
}

const weather = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

const probeTimeoutMs = 300_000;
