import type { FeatureName } from '../../generation/feature-names.ts';
import type { Constraint, EngineRequest, ImagePart, Sampling, TokenControls, Tool } from '../../generation/request.ts';
import type { Engine } from '../engines/engine.ts';
import { lookRequest } from '../engines/constraint-look.ts';
import { smallRequest } from '../engines/small-request.ts';
import { ask } from './answer.ts';

/** What the checks need to know about a backend. */
export interface ClaimedServer {
  readonly engine: Engine;
  readonly isChat: boolean;
  /** What the card promises, and what the server reports; `undefined`: it reports no window. */
  readonly contextLength: number;
  readonly windowTokens: number | undefined;
}

/** The result of a check: `undefined` where the claim holds; otherwise what was found instead, or why nothing could be found. */
export type Finding =
  { readonly broken: string; readonly measured?: number } | { readonly unknown: string } | undefined;

/** One claim that a model's card, or its entry in the configuration, makes about each of its backends. */
export interface Claim {
  /** The expected behavior, in words. */
  readonly what: string;
  /** Sends the requests and judges the answers. Rejects with the engine's error. */
  readonly look: (server: ClaimedServer, signal: AbortSignal) => Promise<Finding>;
}

export const claimNames = ['usage', 'window', 'abort'] as const;
/** Missing features are optional; other mismatches are reported. */
export type ClaimName = FeatureName | (typeof claimNames)[number];

const weather: Tool = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

/** A red image of 64 × 64 pixels. */
const image: ImagePart = {
  type: 'image',
  mediaType: 'image/png',
  base64:
    'iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYrsKZeS0BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3AAAAAElFTkSuQmCC',
  size: { width: 64, height: 64 },
  at: '',
};

const plainTokens: TokenControls = {
  ...{ echo: false, returnsIds: false, namesIds: false, stopIds: [], ignoresEnd: false, tokensMin: 0 },
  ...{ skipsSpecial: true, includesStop: false, addsSpecial: true },
};

/** A question about the weather that must be answered with a call. */
const callRequest = (): EngineRequest => ({
  ...smallRequest({ text: 'What is the weather in Paris?' }),
  maxTokens: 128,
  tools: [weather],
  toolChoice: { type: 'function', name: weather.name },
});

/** The server may support calls all the same, so this does not count against it. */
const notForced = { unknown: 'servers of its kind cannot be made to call a function' };

/** The table of claims: what is sent, and what must come back. Everything is sent the same way as customers' requests. */
export const claims: Readonly<Record<ClaimName, Claim>> = {
  usage: {
    what: 'reports the tokens of a prompt and an answer, as many as there are',
    look: async ({ engine, isChat }, signal) => {
      const short = await ask(engine, { ...smallRequest({ isChat }), maxTokens: 4 }, signal);
      const long = await ask(
        engine,
        { ...smallRequest({ isChat, text: `Say hello. ${'word '.repeat(100)}` }), maxTokens: 4 },
        signal,
      );
      if (short.usage?.promptTokens === undefined || long.usage?.promptTokens === undefined)
        return { broken: 'it reports no usage, or one that cannot be true' };
      // A word is one token or several, so 100 words are at least 100 tokens, unless the server makes its numbers up.
      const more = long.usage.promptTokens - short.usage.promptTokens;
      if (more < 50 || more > 1_000) return { broken: `100 words more in a prompt are ${more} tokens more` };
      if (short.usage.completionTokens < 1) return { broken: 'an answer of several tokens is reported as none' };
      return undefined;
    },
  },
  window: {
    what: 'has a window as long as the card says',
    look: ({ contextLength, windowTokens }) => {
      if (windowTokens === undefined) return Promise.resolve({ unknown: 'it does not report its window' });
      return Promise.resolve(
        windowTokens < contextLength
          ? { broken: `its window is ${windowTokens} tokens, the card says ${contextLength}`, measured: windowTokens }
          : undefined,
      );
    },
  },
  abort: { what: 'stops working on an answer that nobody reads any more', look: lookAtAbort },
  tools: {
    what: 'calls a function when it has to',
    look: async ({ engine }, signal) => {
      if (engine.refusal?.(callRequest()) !== undefined) return notForced;
      const { calls } = await ask(engine, callRequest(), signal);
      return calls[0]?.name === weather.name ? undefined : { broken: 'it answers without the call' };
    },
  },
  tool_streaming: {
    what: 'streams a call whole: its name, arguments that are JSON, and its end',
    look: async ({ engine }, signal) => {
      if (engine.refusal?.(callRequest()) !== undefined) return notForced;
      const { calls, finishes } = await ask(engine, callRequest(), signal);
      if (finishes.includes('length')) return { unknown: 'the call was cut at 128 tokens' };
      return calls.length === 1 && isObjectText(calls[0]!.arguments)
        ? undefined
        : { broken: 'the arguments of a streamed call are not JSON' };
    },
  },
  json_object: {
    what: 'answers with a JSON object',
    look: bound('json-object', (text, isWhole) => !isWhole || isObjectText(text)),
  },
  json_schema: { what: 'answers by a JSON Schema', look: bound('json-schema', isLookWord) },
  regex: { what: 'answers by a regular expression', look: bound('regex', isLookWord) },
  grammar: { what: 'answers by a grammar', look: bound('grammar', isLookWord) },
  vision: {
    what: 'reads an image',
    look: async ({ engine }, signal) => {
      const text = { type: 'text', text: 'Which colour is this?' } as const;
      const withParts = (...content: readonly (typeof text | ImagePart)[]): EngineRequest => ({
        ...smallRequest(),
        prompt: { type: 'messages', messages: [{ role: 'user', content }] },
        maxTokens: 4,
      });
      const without = await ask(engine, withParts(text), signal);
      const seen = await ask(engine, withParts(text, image), signal);
      const more = (seen.usage?.promptTokens ?? 0) - (without.usage?.promptTokens ?? 0);
      if (seen.usage === undefined || without.usage === undefined) return { unknown: 'it reports no usage' };
      return more > 3 ? undefined : { broken: 'an image adds no tokens to the prompt, so it is left out' };
    },
  },
  reasoning: {
    what: 'returns its reasoning apart from the answer',
    look: async ({ engine }, signal) => {
      const { reasoning, finishes } = await ask(
        engine,
        { ...smallRequest({ text: 'How much is 17 times 23? Think first.' }), effort: 'medium', maxTokens: 256 },
        signal,
      );
      if (reasoning !== '') return undefined;
      return finishes.length === 0 ? { unknown: 'the answer has no end' } : { broken: 'it answers without reasoning' };
    },
  },
  logprobs: {
    what: 'reports the probabilities of tokens and of their alternatives',
    look: async ({ engine, isChat }, signal) => {
      const { logprobs } = await ask(engine, { ...smallRequest({ isChat }), logprobs: 2, maxTokens: 4 }, signal);
      if (logprobs.length === 0) return { broken: 'it reports none' };
      const isPossible = logprobs.every(({ logprob, top }) => logprob <= 0 && top.every((each) => each.logprob <= 0));
      return isPossible ? undefined : { broken: 'it reports probabilities above 1' };
    },
  },
  n: {
    what: 'gives several answers to one request',
    look: async ({ engine, isChat }, signal) => {
      const base = smallRequest({ isChat });
      // vLLM refuses several choices without sampling, which would all be equal.
      const free = { ...base, sampling: { ...base.sampling, temperature: 1 } };
      const { finishes } = await ask(engine, { ...free, choices: 2, maxTokens: 4 }, signal);
      return finishes.length === 2 ? undefined : { broken: `it gives ${finishes.length} of 2 answers` };
    },
  },
  token_ids: {
    what: 'returns the ids of the tokens of prompt and answer',
    look: async ({ engine }, signal) => {
      const request = {
        ...smallRequest({ isChat: false }),
        maxTokens: 4,
        tokens: { ...plainTokens, returnsIds: true },
      };
      const { tokenIds, promptIds } = await ask(engine, request, signal);
      return tokenIds.length > 0 && promptIds.length > 0 ? undefined : { broken: 'it returns none' };
    },
  },
  min_p: { what: 'keeps to `min_p`', look: sampled({ minP: 1 }) },
  top_k: { what: 'keeps to `top_k`', look: sampled({ topK: 1 }) },
};

/** Returns whether the text is one of the words of `lookRequest`, which no model writes by itself. */
function isLookWord(text: string): boolean {
  return ['qzjx', 'jxqz', '"qzjx"', '"jxqz"'].includes(text.trim());
}

function bound(type: Constraint['type'], isKept: (text: string, isWhole: boolean) => boolean): Claim['look'] {
  return async ({ engine, isChat }, signal) => {
    const { texts, finishes } = await ask(engine, { ...lookRequest({ type, isChat }), retain: false }, signal);
    return isKept(texts[0] ?? '', !finishes.includes('length')) ? undefined : { broken: 'it answers in another form' };
  };
}

/** Checks a sampling option: with only the likeliest token left, neither a very high temperature nor another seed changes anything. */
function sampled(kept: Partial<Sampling>): Claim['look'] {
  return async ({ engine, isChat }, signal) => {
    const base = smallRequest({ isChat, text: 'Write a few random words.' });
    const withSeed = async (seed: number, more: Partial<Sampling>): Promise<string> => {
      const sampling = { ...base.sampling, temperature: 2, seed, ...more };
      return (await ask(engine, { ...base, sampling, maxTokens: 16 }, signal)).texts.join('');
    };
    const [one, other] = [await withSeed(1, kept), await withSeed(2, kept)];
    return one === other ? undefined : { broken: 'two seeds give two answers where only one token was left' };
  };
}

const abortWaitMs = 5_000;
const abortLookMs = 100;

/** Checks that an aborted request stops. Only the server's own report tells whether it goes on. */
async function lookAtAbort({ engine, isChat }: ClaimedServer, signal: AbortSignal): Promise<Finding> {
  const atWork = async (): Promise<number | undefined> => {
    const report = await engine.report?.();
    signal.throwIfAborted();
    return report === undefined ? undefined : report.running + report.waiting;
  };
  const before = await atWork();
  if (before === undefined) return { unknown: 'it does not tell what it is working on' };
  if (before > 0) return { unknown: 'it is working for others now' };
  const leaving = new AbortController();
  const leave = (): void => leaving.abort(signal.reason);
  signal.addEventListener('abort', leave, { once: true });
  let hasEnded = true;
  const request = { ...smallRequest({ isChat, text: 'Count from 1 to 1000, one number a line.' }), maxTokens: 1_024 };
  try {
    await engine.generate(request, leaving.signal, () => {
      // Abort at the first token.
      if (!leaving.signal.aborted) queueMicrotask(() => leaving.abort(new Error('enough')));
      return true;
    });
  } catch (error) {
    if (!leaving.signal.aborted || signal.aborted) throw error;
    hasEnded = false;
  } finally {
    signal.removeEventListener('abort', leave);
  }
  if (hasEnded) return { unknown: 'its answer was over too soon' };
  for (const startMs = performance.now(); performance.now() - startMs < abortWaitMs;) {
    if ((await atWork()) === 0) return undefined;
    await new Promise((resolve) => setTimeout(resolve, abortLookMs));
    signal.throwIfAborted();
  }
  return { broken: `it goes on for more than ${abortWaitMs / 1_000} seconds` };
}

function isObjectText(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
