import type { Figures } from './count.ts';
import { maxTokens } from './count.ts';
import type { Habits } from './habits.ts';
import type { Tokens } from './meaning.ts';

type Json = Readonly<Record<string, unknown>>;

/** The figures that a server writes down for these tokens, and the total beside them. */
export function writtenFigures(tokens: Tokens, { figures }: Habits): Figures {
  const { prompt, cached, completion, reasoning } = tokens;
  const each = (change: (value: number) => unknown): Figures => ({
    prompt: change(prompt),
    cached: change(cached),
    completion: change(completion),
    reasoning: change(reasoning),
  });
  switch (figures) {
    case 'true':
      return tokens;
    case 'zeros':
      return each(() => 0);
    case 'no completion':
      return { ...tokens, completion: 0, reasoning: 0 };
    case 'no prompt':
      return { ...tokens, prompt: 0, cached: 0 };
    case 'negative':
      return each(() => -1);
    case 'fractions':
      return each((value) => value + 0.5);
    case 'texts':
      return each(String);
    case 'huge':
      return each((value) => (value + 1) * 1e12);
    case 'cached beyond':
      return { ...tokens, cached: prompt + 1 };
    case 'reasoning beyond':
      return { ...tokens, reasoning: completion + 1 };
    case 'above the limit':
      return { ...tokens, completion: maxTokens + 30 };
    case 'too small':
      return { ...tokens, completion: 1, reasoning: 0 };
  }
}

const less = (value: unknown, part: unknown): unknown =>
  typeof value === 'number' && typeof part === 'number' ? value - part : value;
const more = (value: unknown, part: unknown): unknown =>
  typeof value === 'number' && typeof part === 'number' ? value + part : value;

/** What a usage object tells: figures that its names leave out are missing. */
export interface WrittenUsage {
  readonly usage: Json;
  readonly reported: Figures;
}

export function usageOf(figures: Figures, habits: Habits): WrittenUsage {
  const { usageNames, reasoningBeside } = habits;
  const { prompt, cached, completion, reasoning } = figures;
  const { reasoning: _, ...withoutReasoning } = figures;
  // What a server counts beside the completion is in its total.
  const isBeside = reasoningBeside !== 'no' && typeof reasoning === 'number' && reasoning > 0;
  const written = isBeside ? less(completion, reasoning) : completion;
  const shown = isBeside && reasoningBeside === 'in the total alone' ? undefined : reasoning;
  const total = { total_tokens: more(prompt, completion) };
  const counts = { prompt_tokens: prompt, completion_tokens: written, ...total };
  const hasReasoning = isBeside || shown !== undefined;
  const reported = hasReasoning ? figures : withoutReasoning;
  const unsaid: Figures = isBeside ? figures : withoutReasoning;
  switch (usageNames) {
    case 'openai': {
      const details = { cached_tokens: cached, audio_tokens: 0 };
      const others = { reasoning_tokens: shown, audio_tokens: 0 };
      return { usage: { ...counts, prompt_tokens_details: details, completion_tokens_details: others }, reported };
    }
    case 'plain':
      return {
        usage: { ...counts, ...(isBeside ? { reasoning_tokens: shown } : {}) },
        reported: { ...unsaid, cached: 0 },
      };
    case 'null details': {
      const nulls = {
        prompt_tokens_details: null,
        completion_tokens_details: isBeside ? { reasoning_tokens: shown } : null,
      };
      return { usage: { ...counts, ...nulls }, reported: { ...unsaid, cached: 0 } };
    }
    case 'cached_tokens':
      return { usage: { ...counts, cached_tokens: cached, reasoning_tokens: shown }, reported };
    case 'hits': {
      const misses = { prompt_cache_hit_tokens: cached, prompt_cache_miss_tokens: less(prompt, cached) };
      return { usage: { ...counts, ...misses, completion_tokens_details: { reasoning_tokens: shown } }, reported };
    }
    case 'anthropic': {
      const usage = { input_tokens: less(prompt, cached), cache_read_input_tokens: cached, output_tokens: completion };
      return { usage: { ...usage, cache_creation_input_tokens: 0 }, reported: withoutReasoning };
    }
    case 'responses': {
      const input = { input_tokens: prompt, input_tokens_details: { cached_tokens: cached } };
      const output = { output_tokens: written, output_tokens_details: { reasoning_tokens: shown }, ...total };
      return { usage: { ...input, ...output }, reported };
    }
    case 'reasoning_tokens':
      return {
        usage: { ...counts, prompt_tokens_details: { cached_tokens: cached }, reasoning_tokens: shown },
        reported,
      };
  }
}

/** llama.cpp's, where it has no usage. */
export function timingsOf({ prompt, cached, completion }: Figures): WrittenUsage {
  const timings = { cache_n: cached, prompt_n: less(prompt, cached), predicted_n: completion, predicted_ms: 20.25 };
  return { usage: timings, reported: { prompt, cached, completion } };
}

/** The figures when this share of the answer has been said. */
export const partOf = (figures: Figures, share: number): Figures =>
  typeof figures.completion === 'number' && Number.isInteger(figures.completion) && figures.completion > 0
    ? { ...figures, completion: Math.ceil(figures.completion * share), reasoning: undefined }
    : figures;
