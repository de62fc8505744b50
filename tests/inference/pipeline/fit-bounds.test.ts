/** What a prompt may be of tokens before anybody has counted it: to the token, because credit is held and limits are claimed by these numbers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Model } from '../../../src/catalog/model.ts';
import type { Message, Prompt, Task, Tool } from '../../../src/generation/request.ts';
import { fit, fitTask, likelyFit, promptTokenBound } from '../../../src/inference/pipeline/fit.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { capableModel, chatRequest, chatRoute } from './models.ts';

const embed: Task = { type: 'embed', field: 'input', dimensions: undefined };
const rank: Task = { type: 'rank', field: 'documents', query: 'why' };
const text = (value: string) => [{ type: 'text', text: value }] as const;
const messages = (...all: readonly Message[]): Prompt => ({ type: 'messages', messages: all });
const texts = (...prompts: readonly string[]): Prompt => ({ type: 'texts', prompts });
const ids = (...lengths: readonly number[]): Prompt => ({
  type: 'token-ids',
  prompts: lengths.map((length) => new Array<number>(length).fill(1)),
});
const answer = (id: string, name: string, args: string): Message => ({
  role: 'assistant',
  content: text('ok'),
  reasoning: [{ text: 'hm', signature: undefined }],
  toolCalls: [{ id, name, arguments: args }],
});
const tool = (fields: Partial<Tool>): Tool => ({
  type: 'function',
  name: 'f',
  description: undefined,
  parameters: undefined,
  ...fields,
});
const modelOf = (contextLength: number, maxOutputTokens: number | null = null): Model => ({
  ...capableModel,
  contextLength,
  maxOutputTokens,
});

/** A conversation has 128, and each of its messages, tools and calls what is added here. */
const bounds: readonly (readonly [string, Prompt, readonly Tool[], Task | undefined, number])[] = [
  ['no message', messages(), [], undefined, 128],
  ['a text', messages({ role: 'user', content: text('é!') }), [], undefined, 128 + 16 + 3],
  [
    'a picture beside a text',
    messages({ role: 'user', content: [...text('abc'), { type: 'image-url', url: 'https://x', at: '' }] }),
    [],
    undefined,
    128 + 16 + 3,
  ],
  ['two messages', messages({ role: 'system', content: [] }, { role: 'user', content: [] }), [], undefined, 128 + 32],
  // Its id is printed twice, in quotes; its arguments have a blank after each character.
  ['a call', messages(answer('i', 'nm', '{"a":1}')), [], undefined, 128 + 16 + 4 + 2 * 3 + 4 + 14 + 128],
  [
    'a call whose arguments are quoted',
    messages(answer('i', 'nm', '""""')),
    [],
    undefined,
    128 + 16 + 4 + 6 + 4 + 10 + 128,
  ],
  [
    'a result, which is quoted',
    messages({ role: 'tool', toolCallId: 'id', content: text('a"b') }),
    [],
    undefined,
    128 + 16 + 2 * 4 + 128 + 6,
  ],
  [
    'a result with a picture, of no call',
    messages({ role: 'tool', toolCallId: undefined, content: [{ type: 'image-url', url: 'https://x', at: '' }] }),
    [],
    undefined,
    128 + 16 + 2 * 2 + 128,
  ],
  ['a tool', messages(), [tool({})], undefined, 128 + 1024 + 3 + 2 + 2 * 2 + 128],
  [
    'two tools',
    messages(),
    [tool({ name: 'fg' }), tool({ description: 'what', parameters: { a: 1 } })],
    undefined,
    128 + 1024 + (4 + 2 + 4 + 128) + (3 + 6 + 14 + 128),
  ],
  ['texts', texts('abc', 'é'), [], undefined, 4 + 3],
  ['texts to embed', texts('abc', 'é'), [], embed, 4 + 3 + 2 * 3],
  ['texts to rank', texts('abc', 'é'), [], rank, 4 + 3 + 2 * (3 + 128)],
  ['ids', ids(3, 1), [], undefined, 4],
  ['ids to embed', ids(3, 1), [], embed, 4],
];

test('the bound of a prompt, to the token', () => {
  for (const [what, prompt, tools, task, tokens] of bounds)
    assert.equal(promptTokenBound(prompt, tools, task), tokens, what);
});

test('what is estimated of a request that is not prepared yet', () => {
  const prompt = messages({ role: 'user', content: text('abc') });
  const ofWindow = (
    window: number,
    cap: number | null,
    maxTokens: number | undefined,
    images = { likely: 0, most: 0 },
  ) => likelyFit({ prompt, tools: [], maxTokens }, modelOf(window, cap), chatRoute, images);
  const rest = { reasoningRoomTokens: 0, counted: false, limitedByContext: false };
  assert.deepEqual(ofWindow(1_000, null, 50), { maxTokens: 50, promptTokens: 147, promptTokensPossible: 147, ...rest });
  // Never more than the window, except for images, which no window bounds.
  assert.deepEqual(ofWindow(100, 500, undefined), {
    maxTokens: 100,
    promptTokens: 100,
    promptTokensPossible: 147,
    ...rest,
  });
  assert.deepEqual(ofWindow(100, null, 50, { likely: 5, most: 300 }), {
    maxTokens: 50,
    promptTokens: 300,
    promptTokensPossible: 447,
    ...rest,
  });
  // A task has no answer, and each of its texts the window to itself.
  const task = { prompt: texts('x'.repeat(96), 'x'.repeat(96)), tools: [], maxTokens: undefined, task: embed };
  assert.deepEqual(likelyFit(task, modelOf(100), chatRoute, { likely: 0, most: 0 }), {
    maxTokens: 0,
    promptTokens: 200,
    promptTokensPossible: 200,
    ...rest,
  });
});

test('what every tokenizer stays below: the bound, and a mark before ids', async () => {
  const possible = async (prompt: Prompt, count: number | undefined) => {
    const request = { ...chatRequest(), prompt, tools: [], maxTokens: 10, reasoningRoomTokens: 0 };
    const counting = () => Promise.resolve(count);
    return await fit(request, modelOf(200), chatRoute, counting, () => [], { likely: 2, most: 5 });
  };
  assert.equal((await possible(texts('abc', 'defg'), undefined)).promptTokensPossible, 4 + 5 + 5 + 5);
  assert.equal((await possible(texts('x'.repeat(199)), 7)).promptTokensPossible, 205);
  assert.equal((await possible(ids(3, 4), undefined)).promptTokensPossible, 3 + 5 + 1 + (4 + 5 + 1));
});

test('an answer is limited by the window where it would be longer without it', async () => {
  const limited = async (cap: number | null, maxTokens: number, promptTokens: number) => {
    const request = { ...chatRequest(), prompt: ids(promptTokens), tools: [], maxTokens, reasoningRoomTokens: 0 };
    const fitted = await fit(request, modelOf(100, cap), chatRoute, undefined, () => []);
    assert.ok(fitted !== undefined);
    return [fitted.maxTokens, fitted.limitedByContext];
  };
  assert.deepEqual(await limited(null, 60, 40), [60, false]);
  assert.deepEqual(await limited(null, 60, 41), [59, true]);
  // Nothing needs no room.
  assert.deepEqual(await limited(null, 100, 0), [100, false]);
});

test('lengths are known at once, or after a count', () => {
  const request = { ...chatRequest(), tools: [], maxTokens: 50, reasoningRoomTokens: 0 };
  const at = (prompt: Prompt) => fit({ ...request, prompt }, modelOf(100), chatRoute, undefined, () => []);
  assert.equal(at(texts('x'.repeat(50))), undefined);
  assert.equal((at(texts('x'.repeat(49))) as { readonly maxTokens: number }).maxTokens, 50);
  const counting = (): Promise<number> => assert.fail('counted');
  const known = fit({ ...request, prompt: texts('x') }, modelOf(100), chatRoute, counting, () => []);
  assert.ok(!(known instanceof Promise));
});

/** What a task's prompt is fitted to: its tokens, whether each is counted, and how often the backend was asked. */
type Outcome =
  | { readonly tokens: number; readonly isCounted: boolean; readonly possible: number; readonly asked: number }
  | { readonly code: string; readonly param: string; readonly promptTokens?: number; readonly asked: number };
type Counted = number | 'too-long' | undefined;

/** A text of 96 bytes has a bound of 100 tokens. */
const x = (bytes: number): string => 'x'.repeat(bytes);
const tasks: readonly (readonly [string, number, Prompt, Counted, Outcome])[] = [
  ['fits by its bytes', 100, texts(x(96)), undefined, { tokens: 100, isCounted: false, possible: 100, asked: 0 }],
  ['fits by its count', 100, texts(x(97)), 100, { tokens: 100, isCounted: true, possible: 101, asked: 1 }],
  ['one fits by its count', 100, texts(x(97), x(1)), 7, { tokens: 7 + 5, isCounted: false, possible: 106, asked: 1 }],
  ['nobody counts', 100, texts(x(97), x(97)), undefined, { tokens: 202, isCounted: false, possible: 202, asked: 1 }],
  [
    'is too long',
    100,
    texts(x(97)),
    101,
    { code: 'context_length_exceeded', param: 'input[0]', promptTokens: 101, asked: 1 },
  ],
  [
    'the second is too long',
    100,
    texts(x(1), x(97)),
    'too-long',
    { code: 'context_length_exceeded', param: 'input[1]', asked: 1 },
  ],
  ['fits with no tokenizer', 100, texts(x(6_401)), 5, { code: 'context_length_exceeded', param: 'input[0]', asked: 0 }],
  ['is one long token', 100, texts(x(6_400)), 5, { tokens: 5, isCounted: true, possible: 6_404, asked: 1 }],
  ['ids', 100, ids(100, 1), undefined, { tokens: 101, isCounted: true, possible: 101 + 2 * 3, asked: 0 }],
  [
    'too many ids',
    100,
    ids(1, 101),
    undefined,
    { code: 'context_length_exceeded', param: 'input[1]', promptTokens: 101, asked: 0 },
  ],
  [
    'all together',
    150_000,
    ids(150_000, 150_000),
    undefined,
    { tokens: 300_000, isCounted: true, possible: 300_006, asked: 0 },
  ],
  [
    'more together',
    150_000,
    ids(150_000, 150_000, 1),
    undefined,
    { code: 'unsupported_value', param: 'input', asked: 0 },
  ],
  [
    'likely as many',
    2_000_000,
    texts(x(1_199_996)),
    undefined,
    { tokens: 1_200_000, isCounted: false, possible: 1_200_000, asked: 0 },
  ],
  ['likely more', 2_000_000, texts(x(1_199_997)), undefined, { code: 'unsupported_value', param: 'input', asked: 0 }],
];

test('a task: each prompt fits the window, all together 300,000 tokens, and who is asked for it', async (t) => {
  const at = { ...chatRequest().at, prompt: 'input', promptAt: (index: number) => `input[${index}]` };
  for (const [what, window, prompt, count, outcome] of tasks)
    await t.test(what, async () => {
      let asked = 0;
      const counting = () => {
        asked++;
        return Promise.resolve(count);
      };
      const fitted = fitTask({ at, prompt, task: embed }, modelOf(window), counting, () => []);
      if ('code' in outcome) {
        const refused: unknown = await fitted.catch((error: unknown) => error);
        assert.ok(refused instanceof ApiError, String(refused));
        assert.deepEqual(
          { code: refused.code, param: refused.param, promptTokens: refused.extra?.['prompt_tokens'], asked },
          { promptTokens: undefined, ...outcome },
        );
        if (outcome.promptTokens !== undefined)
          assert.ok(refused.message.includes(` of ${outcome.promptTokens} tokens`));
        return;
      }
      const { tokens, isCounted, possible } = outcome;
      assert.deepEqual(await fitted, {
        maxTokens: 0,
        reasoningRoomTokens: 0,
        promptTokens: tokens,
        counted: isCounted,
        promptTokensPossible: possible,
        limitedByContext: false,
      });
      assert.equal(asked, outcome.asked);
    });
  // Without a backend to ask, what needs a count is undecided.
  const undecided = await fitTask({ at, prompt: texts(x(97)), task: embed }, modelOf(100), undefined, () => []);
  assert.equal(undecided, undefined);
  const decided = await fitTask({ at, prompt: texts(x(96)), task: embed }, modelOf(100), undefined, () => []);
  assert.equal(decided?.promptTokens, 100);
});
