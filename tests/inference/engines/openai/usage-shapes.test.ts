/** The shapes in which servers report usage, each with the counts that it means, read from a stream and from a whole answer. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { UsageReport } from '../../../../src/generation/event.ts';
import { UsageTally } from '../../../../src/inference/engines/usage-tally.ts';
import { newDecoder } from './decoding.ts';

type Shape = Readonly<Record<string, unknown>>;

const counts = (
  promptTokens: number | undefined,
  cachedTokens: number,
  completionTokens: number,
  reasoningTokens: number,
): UsageReport => ({ promptTokens, cachedTokens, completionTokens, reasoningTokens });

/** A word to think, and two to say. */
const answer = { reasoning_content: ' hm', content: ' Hello there' };

/** Estimates: nothing was reported that can be true. */
const estimated = counts(undefined, 0, 3, 1);

const plain = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
const details = (cached_tokens: unknown, reasoning_tokens: unknown) => ({
  prompt_tokens_details: { cached_tokens },
  completion_tokens_details: { reasoning_tokens },
});

/** By server: what it sends as `usage`, unless `where` says otherwise, and what that means. */
const shapes: readonly (readonly [string, Shape, UsageReport, ('choice' | 'x_groq' | 'timings')?])[] = [
  [
    'OpenAI',
    {
      ...plain,
      prompt_tokens_details: { cached_tokens: 8, audio_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 3, audio_tokens: 0, accepted_prediction_tokens: 0 },
    },
    counts(10, 8, 5, 3),
  ],
  ['vLLM', { ...plain, prompt_tokens_details: null }, counts(10, 0, 5, 2)],
  ['vLLM, with its cache', { ...plain, prompt_tokens_details: { cached_tokens: 8 } }, counts(10, 8, 5, 2)],
  ['SGLang', { ...plain, reasoning_tokens: 3, prompt_tokens_details: { cached_tokens: 8 } }, counts(10, 8, 5, 3)],
  ['llama.cpp', { ...plain, prompt_tokens_details: { cached_tokens: 9 } }, counts(10, 9, 5, 2)],
  [
    'llama.cpp before it had `stream_options`',
    { cache_n: 8, prompt_n: 2, prompt_ms: 1.5, predicted_n: 5, predicted_ms: 20.25 },
    counts(10, 8, 5, 2),
    'timings',
  ],
  ['Ollama', plain, counts(10, 0, 5, 2)],
  ['text-generation-inference', plain, counts(10, 0, 5, 2)],
  ['LM Studio', { ...plain, completion_tokens_details: { reasoning_tokens: 3 } }, counts(10, 0, 5, 3)],
  [
    'DeepSeek',
    {
      ...plain,
      prompt_cache_hit_tokens: 8,
      prompt_cache_miss_tokens: 2,
      completion_tokens_details: { reasoning_tokens: 3 },
    },
    counts(10, 8, 5, 3),
  ],
  ['Moonshot', { ...plain, cached_tokens: 8 }, counts(10, 8, 5, 2), 'choice'],
  [
    'xAI',
    { prompt_tokens: 10, completion_tokens: 5, total_tokens: 65, ...details(8, 50), num_sources_used: 0 },
    counts(10, 8, 55, 50),
  ],
  [
    'Gemini, which names its thoughts',
    { prompt_tokens: 10, completion_tokens: 5, total_tokens: 65, completion_tokens_details: { reasoning_tokens: 50 } },
    counts(10, 0, 55, 50),
  ],
  ['Gemini, which does not', { prompt_tokens: 10, completion_tokens: 5, total_tokens: 65 }, counts(10, 0, 55, 50)],
  ['Groq', { queue_time: 0.1, ...plain, prompt_time: 0.01, total_time: 0.2 }, counts(10, 0, 5, 2), 'x_groq'],
  ['Mistral', { ...plain, prompt_audio_seconds: null, num_cached_tokens: 0 }, counts(10, 0, 5, 2)],
  [
    'Anthropic, which counts its cache beside the input',
    { input_tokens: 2, cache_creation_input_tokens: 1, cache_read_input_tokens: 7, output_tokens: 5 },
    counts(10, 7, 5, 2),
  ],
  [
    'LiteLLM in front of Anthropic',
    { ...plain, cache_creation_input_tokens: 0, cache_read_input_tokens: 8 },
    counts(10, 8, 5, 2),
  ],
  [
    'the names of responses',
    {
      input_tokens: 10,
      input_tokens_details: { cached_tokens: 8 },
      output_tokens: 5,
      output_tokens_details: { reasoning_tokens: 3 },
      total_tokens: 15,
    },
    counts(10, 8, 5, 3),
  ],
  ['Cohere', { ...plain, prompt_tokens_details: { cached_tokens: 0 } }, counts(10, 0, 5, 2)],
  ['OpenRouter', { ...plain, cost: 0.0001, is_byok: false, ...details(8, 3) }, counts(10, 8, 5, 3)],
  ['Together', { ...plain, cached_tokens: 8 }, counts(10, 8, 5, 2)],
  ['Fireworks', { ...plain, prompt_tokens_details: { cached_tokens: 8 } }, counts(10, 8, 5, 2)],
  ['Cerebras', { ...plain, prompt_tokens_details: { cached_tokens: 0 } }, counts(10, 0, 5, 2)],
  [
    'DashScope',
    { ...plain, prompt_tokens_details: { cached_tokens: 8 }, completion_tokens_details: { text_tokens: 5 } },
    counts(10, 8, 5, 2),
  ],
  ['details win over the same figure elsewhere', { ...plain, cached_tokens: 9, ...details(8, 3) }, counts(10, 8, 5, 3)],
  ['details that say nothing do not', { ...plain, cached_tokens: 8, ...details(null, null) }, counts(10, 8, 5, 2)],
  ['zeros beside an answer', { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }, estimated],
  ['no completion', { prompt_tokens: 10, completion_tokens: 0, total_tokens: 10 }, counts(10, 0, 3, 1)],
  ['no prompt', { prompt_tokens: 0, completion_tokens: 5, total_tokens: 5 }, counts(undefined, 0, 5, 2)],
  ['negative', { prompt_tokens: -1, completion_tokens: -1, total_tokens: -2 }, estimated],
  ['no numbers', { prompt_tokens: '10', completion_tokens: 'NaN', ...details('8', {}) }, estimated],
  ['huge', { prompt_tokens: 1e12, completion_tokens: 1e12, total_tokens: 2e12 }, estimated],
  ['more cached than there is', { ...plain, cached_tokens: 11 }, counts(10, 0, 5, 2)],
  ['more reasoning than there is', { ...plain, ...details(0, 6) }, counts(10, 0, 5, 2)],
  ['nothing', {}, estimated],
];

const chunk = (delta: object, finish: string | null, more: object = {}, ofChoice: object = {}): object => ({
  model: 'm',
  choices: [{ index: 0, delta, finish_reason: finish, ...ofChoice }],
  ...more,
});

function streamed(shape: Shape, where: 'usage' | 'choice' | 'x_groq' | 'timings'): readonly object[] {
  const said = [
    chunk({ role: 'assistant', content: '' }, null),
    chunk({ reasoning_content: answer.reasoning_content }, null),
    chunk({ content: answer.content }, null),
  ];
  switch (where) {
    case 'choice':
      return [...said, chunk({}, 'stop', {}, { usage: shape })];
    case 'x_groq':
      return [...said, chunk({}, 'stop', { x_groq: { id: 'req_1', usage: shape } })];
    case 'timings':
      return [...said, chunk({}, 'stop', { timings: shape })];
    case 'usage':
      return [...said, chunk({}, 'stop'), { choices: [], usage: shape }];
  }
}

function whole(shape: Shape, where: 'usage' | 'choice' | 'x_groq' | 'timings'): object {
  const message = { index: 0, message: { role: 'assistant', ...answer }, finish_reason: 'stop' };
  switch (where) {
    case 'choice':
      return { choices: [{ ...message, usage: shape }] };
    case 'x_groq':
      return { choices: [message], x_groq: { usage: shape } };
    case 'timings':
      return { choices: [message], timings: shape };
    case 'usage':
      return { choices: [message], usage: shape };
  }
}

/** The last usage of an answer, and whether it is marked. */
function usageOf(feed: (decoder: ReturnType<typeof newDecoder>) => void): { usage: unknown; counted: boolean } {
  const decoder = newDecoder({ reasons: true });
  feed(decoder);
  const events = decoder.drain();
  const last = events.findLast((event) => event.type === 'usage');
  return { usage: last?.usage, counted: last?.counted ?? false };
}

describe('the usage of', () => {
  for (const [server, shape, right, where = 'usage'] of shapes) {
    it(server, () => {
      // Whatever is not reported, or not all of it, is marked.
      const isWhole = right.promptTokens === 10 && right.completionTokens >= 5 && !server.startsWith('more ');
      const expected = { usage: right, counted: !isWhole };
      const fromStream = usageOf((decoder) => {
        for (const one of streamed(shape, where)) decoder.event(JSON.stringify(one), '');
        decoder.event('[DONE]', '');
      });
      assert.deepEqual(fromStream, expected, 'streamed');
      assert.deepEqual(
        usageOf((decoder) => decoder.whole(JSON.stringify(whole(shape, where)))),
        expected,
        'whole',
      );
    });
  }
});

it('the usage is told once for what was said', () => {
  const decoder = newDecoder();
  decoder.event(JSON.stringify(chunk({ content: 'Hello' }, null)), '');
  const types = (): readonly string[] => decoder.drain().map(({ type }) => type);
  assert.deepEqual(types(), ['start', 'text', 'usage']);
  assert.deepEqual(types(), []);
});

it('a prompt that is empty may have no token', () => {
  const tally = new UsageTally({
    choices: 1,
    choicesPerPrompt: 1,
    promptTokensMin: 0,
    promptTokensMax: 10,
    completionTokensMax: 10,
  });
  tally.reportTotal({ promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 });
  assert.ok(tally.isReported);
});
