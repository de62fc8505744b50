import type { Engine } from '../inference/engines/engine.ts';
import type { Purpose } from '../inference/engines/llama/purpose.ts';
import { smallRequest } from '../inference/engines/small-request.ts';
import { ApiError } from '../platform/errors.ts';

export interface Probe {
  readonly text: string;
  /** Whether it reasons before it answers. */
  readonly reasons: boolean;
  readonly tokensPerSecond: number;
}

export interface TaskProbe {
  /** Numbers per vector; a score has one. */
  readonly dimensions: number;
  readonly tokensPerSecond: number;
}

/** Runs any engine on eight short texts. Rejects with its failure. */
export async function measureTexts(engine: Engine, purpose: Exclude<Purpose, 'write'>): Promise<TaskProbe> {
  let dimensions = 1;
  let tokens = 0;
  const task =
    purpose === 'embed'
      ? ({ type: 'embed', field: 'input', dimensions: undefined } as const)
      : ({ type: 'rank', field: 'documents', query: 'Which words are there?' } as const);
  const prompt = {
    type: 'texts',
    prompts: Array.from({ length: 8 }, () => 'a few words of text '.repeat(8)),
  } as const;
  const startedMs = performance.now();
  await engine.generate(
    { ...smallRequest({ isChat: false }), prompt, task },
    AbortSignal.timeout(probeTimeoutMs),
    (events) => {
      for (const event of events) {
        if (event.type === 'start') tokens = event.promptTokens ?? 0;
        if (event.type === 'vector') dimensions = event.vector.length;
      }
      return true;
    },
  );
  return { dimensions, tokensPerSecond: tokens / ((performance.now() - startedMs) / 1000) };
}

/** Returns any engine's answer to a short question, and its speed. Rejects with its failure. */
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

/** Whether it accepts functions: many servers refuse them unless started with a parser for the model. */
export async function takesTools(engine: Engine): Promise<boolean> {
  const request = { ...smallRequest(), maxTokens: 1, tools: [weather], toolChoice: { type: 'auto' } as const };
  try {
    await engine.generate(request, AbortSignal.timeout(probeTimeoutMs), () => true);
    return true;
  } catch (error) {
    // A server that has failed or is gone says nothing about functions.
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
