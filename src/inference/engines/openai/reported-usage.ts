import type { RawUsage } from '../usage-tally.ts';
import { isObject, type JsonObject } from './decode/json.ts';

/**
 * The figures of a `usage` object, by all names that servers have for them; tests/inference/engines/openai/usage-shapes.test.ts lists the
 * servers. The details of OpenAI's own shape win over the same figures elsewhere.
 */
export function reportedUsage(usage: JsonObject): RawUsage {
  const prompt = detailsOf(usage, 'prompt_tokens_details', 'input_tokens_details');
  const completion = detailsOf(usage, 'completion_tokens_details', 'output_tokens_details');
  const read = usage['cache_read_input_tokens'];
  return {
    // Anthropic counts what it read from its cache, and what it put there, beside `input_tokens`.
    promptTokens: usage['prompt_tokens'] ?? sumOf([usage['input_tokens'], read, usage['cache_creation_input_tokens']]),
    cachedTokens: prompt?.['cached_tokens'] ?? usage['cached_tokens'] ?? usage['prompt_cache_hit_tokens'] ?? read,
    completionTokens: usage['completion_tokens'] ?? usage['output_tokens'],
    reasoningTokens: completion?.['reasoning_tokens'] ?? usage['reasoning_tokens'],
    totalTokens: usage['total_tokens'],
  };
}

/** The usage of an answer or of one chunk, wherever a server puts it: Groq has an object of its own, llama.cpp its timings. */
export function usageIn(chunk: JsonObject): JsonObject | undefined {
  const { usage, x_groq: groq, timings } = chunk;
  if (isObject(usage)) return usage;
  if (isObject(groq) && isObject(groq['usage'])) return groq['usage'];
  if (!isObject(timings)) return undefined;
  return {
    prompt_tokens: sumOf([timings['prompt_n'], timings['cache_n']]),
    cached_tokens: timings['cache_n'],
    completion_tokens: timings['predicted_n'],
  };
}

function detailsOf(usage: JsonObject, ...names: readonly string[]): JsonObject | undefined {
  for (const name of names) if (isObject(usage[name])) return usage[name];
  return undefined;
}

/** Of the first figure and those that are there beside it; what is no number makes no sum, and is not believed. */
function sumOf([first, ...others]: readonly unknown[]): unknown {
  const figures = [first, ...others.filter((value) => value !== undefined && value !== null)];
  return figures.reduce((sum: unknown, value) =>
    typeof sum === 'number' && typeof value === 'number' ? sum + value : undefined,
  );
}
