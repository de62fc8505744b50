import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import type { Model } from '../../../src/catalog/model.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import type { GenerationRequest, Message } from '../../../src/generation/request.ts';
import { fit, promptTokenBound, retryTokens } from '../../../src/inference/pipeline/fit.ts';
import type { Fitted } from '../../../src/inference/pipeline/fit.ts';
import type { InferenceRoute } from '../../../src/inference/pipeline/route.ts';
import { capableModel, chatRequest, chatRoute, strictRoute } from './models.ts';

const windowRoute: InferenceRoute = { ...strictRoute, defaultMaxTokens: 'window' };

interface Example {
  readonly rule: string;
  readonly window: number;
  readonly cap: number | null;
  readonly asked: number | undefined;
  /** Tokens of the prompt as an engine counts them; `null`: nobody can count; `'unasked'`: it must not be asked. */
  readonly counted: number | null | 'unasked';
  readonly route?: InferenceRoute;
  /** Extra room of the card, with reasoning on. */
  readonly room?: number;
  /** What of it the answer gets; 0 when left out. */
  readonly extra?: number;
  /** max_tokens of the answer, or the code of the refusal. */
  readonly expected: number | 'context_length_exceeded';
}

/** A request whose one message has this many bytes: as many tokens at most, and with a template more in the bound. */
const requestOf = (bytes: number): GenerationRequest =>
  chatRequest({ messages: [{ role: 'user', content: 'x'.repeat(bytes) }] });
const boundOf = (bytes: number): number => promptTokenBound(requestOf(bytes).prompt, []);

const examples: readonly Example[] = [
  {
    rule: '(1) absent: the cap of the card',
    window: 8192,
    cap: 2048,
    asked: undefined,
    counted: 'unasked',
    expected: 2048,
  },
  {
    rule: '(1) absent, no cap: half the window',
    window: 8192,
    cap: null,
    asked: undefined,
    counted: 'unasked',
    expected: 4096,
  },
  {
    rule: '(1) absent, no cap: half of an odd window, down',
    window: 8193,
    cap: null,
    asked: undefined,
    counted: 'unasked',
    expected: 4096,
  },
  {
    rule: '(1) absent, no cap, large window: 65,536',
    window: 1_000_000,
    cap: null,
    asked: undefined,
    counted: 'unasked',
    expected: 65_536,
  },
  {
    rule: '(1) at the border of both: 65,536',
    window: 131_072,
    cap: null,
    asked: undefined,
    counted: 'unasked',
    expected: 65_536,
  },
  {
    rule: '(1) below the border: half',
    window: 131_070,
    cap: null,
    asked: undefined,
    counted: 'unasked',
    expected: 65_535,
  },
  { rule: '(2) above the cap: the cap', window: 8192, cap: 2048, asked: 2049, counted: 'unasked', expected: 2048 },
  { rule: '(2) at the cap: as asked', window: 8192, cap: 2048, asked: 2048, counted: 'unasked', expected: 2048 },
  { rule: '(2) below the cap: as asked', window: 8192, cap: 2048, asked: 1, counted: 'unasked', expected: 1 },
  {
    rule: '(2) on the strict families too',
    window: 8192,
    cap: 2048,
    asked: 5000,
    counted: 'unasked',
    route: strictRoute,
    expected: 2048,
  },
  {
    rule: '(3) above the window: the default, here the cap',
    window: 8192,
    cap: 2048,
    asked: 8193,
    counted: 'unasked',
    expected: 2048,
  },
  {
    rule: '(3) above the window: the default, here half',
    window: 8192,
    cap: null,
    asked: 8193,
    counted: 'unasked',
    expected: 4096,
  },
  {
    rule: '(3) as large as a number gets',
    window: 8192,
    cap: null,
    asked: Number.MAX_VALUE,
    counted: 'unasked',
    expected: 4096,
  },
  {
    rule: '(3) exactly the window is not above it, then (4)',
    window: 8192,
    cap: null,
    asked: 8192,
    counted: 100,
    expected: 8092,
  },
  {
    rule: '(4) does not fit: once more without, what the window leaves',
    window: 8192,
    cap: null,
    asked: 8000,
    counted: 500,
    expected: 7692,
  },
  {
    rule: '(4) what the window leaves, within the cap',
    window: 8192,
    cap: 4096,
    asked: 4096,
    counted: 4000,
    expected: 4096,
  },
  {
    rule: '(4) the cap is above what the window leaves',
    window: 8192,
    cap: 4096,
    asked: 4096,
    counted: 5000,
    expected: 3192,
  },
  { rule: '(4) window exactly full: as asked', window: 8192, cap: null, asked: 8092, counted: 100, expected: 8092 },
  { rule: '(4) one too many', window: 8192, cap: null, asked: 8093, counted: 100, expected: 8092 },
  { rule: '(4) one token of room', window: 8192, cap: null, asked: 8192, counted: 8191, expected: 1 },
  { rule: '(4) no room', window: 8192, cap: null, asked: 8192, counted: 8192, expected: 'context_length_exceeded' },
  {
    rule: '(4) the prompt alone is too long',
    window: 8192,
    cap: null,
    asked: 8192,
    counted: 9000,
    expected: 'context_length_exceeded',
  },
  {
    rule: '(4) strict families refuse',
    window: 8192,
    cap: null,
    asked: 8093,
    counted: 100,
    route: strictRoute,
    expected: 'context_length_exceeded',
  },
  {
    rule: '(4) strict families take what fits',
    window: 8192,
    cap: null,
    asked: 8092,
    counted: 100,
    route: strictRoute,
    expected: 8092,
  },
  {
    rule: '(4) strict families shrink a default',
    window: 300,
    cap: 250,
    asked: undefined,
    counted: 100,
    route: strictRoute,
    expected: 200,
  },
  {
    rule: '(3) ignored is the same as absent there',
    window: 300,
    cap: 250,
    asked: 301,
    counted: 100,
    route: strictRoute,
    expected: 200,
  },
  {
    rule: 'decision 7: absent means what the window leaves',
    window: 8192,
    cap: null,
    asked: undefined,
    counted: 100,
    route: windowRoute,
    expected: 8092,
  },
  {
    rule: 'decision 7: within the cap',
    window: 8192,
    cap: 1000,
    asked: undefined,
    counted: 'unasked',
    route: windowRoute,
    expected: 1000,
  },
  {
    rule: '(5) extra room for reasoning, beyond max_tokens',
    window: 131_072,
    cap: null,
    asked: 1000,
    counted: 'unasked',
    room: 24_576,
    expected: 1000,
    extra: 24_576,
  },
  {
    rule: '(5) on the default too',
    window: 131_072,
    cap: null,
    asked: undefined,
    counted: 'unasked',
    room: 24_576,
    expected: 65_536,
    extra: 24_576,
  },
  {
    rule: '(5) never beyond the cap of the card',
    window: 131_072,
    cap: 8192,
    asked: 1000,
    counted: 'unasked',
    room: 24_576,
    expected: 1000,
    extra: 7192,
  },
  {
    rule: '(5) an answer at the cap has no room beyond it',
    window: 131_072,
    cap: 8192,
    asked: undefined,
    counted: 'unasked',
    room: 24_576,
    expected: 8192,
  },
  {
    rule: '(5) clipped to the window, by the count',
    window: 8192,
    cap: null,
    asked: 4000,
    counted: 1000,
    room: 24_576,
    expected: 4000,
    extra: 3192,
  },
  {
    rule: '(5) clipped to the window, on the strict families too',
    window: 8192,
    cap: null,
    asked: 7000,
    counted: 1000,
    route: strictRoute,
    room: 24_576,
    expected: 7000,
    extra: 192,
  },
  {
    rule: '(5) nobody can count: clipped to what the bound leaves',
    window: 8192,
    cap: null,
    asked: 4000,
    counted: null,
    room: 24_576,
    expected: 4000,
    extra: 4192 - boundOf(1),
  },
  {
    rule: '(5) the retry of (4) takes the whole window, so nothing is left',
    window: 8192,
    cap: null,
    asked: 8000,
    counted: 500,
    room: 24_576,
    expected: 7692,
  },
  { rule: 'nobody can count: the backend judges', window: 8192, cap: null, asked: 8192, counted: null, expected: 8192 },
  {
    rule: 'the bound fits to the token: nobody is asked',
    window: 1000,
    cap: null,
    asked: 1000 - boundOf(1),
    counted: 'unasked',
    expected: 1000 - boundOf(1),
  },
  {
    rule: 'the bound is one above: the engine is asked',
    window: 1000,
    cap: null,
    asked: 1001 - boundOf(5),
    counted: 5,
    expected: 1001 - boundOf(5),
  },
];

for (const example of examples) {
  test(`§4.2.1 ${example.rule}`, async () => {
    const reported = await fitted(example);
    if (reported instanceof ApiError) {
      assert.equal(reported.code, example.expected);
      return;
    }
    assert.equal(reported.maxTokens, example.expected);
    assert.equal(reported.reasoningRoomTokens, example.extra ?? 0);
    assert.equal(reported.counted, typeof example.counted === 'number');
    assert.equal(reported.promptTokens, typeof example.counted === 'number' ? example.counted : boundOf(1));
  });
}

test('§7.2: the refusal says what to do, in words and in fields', async () => {
  const model: Model = { ...capableModel, contextLength: 8192, maxOutputTokens: null };
  const larger: Model = { ...capableModel, id: 'larger', contextLength: 32_768 };
  const refused = await caught(
    Promise.resolve().then(() =>
      fit(
        { ...chatRequest({ max_tokens: 8192 }), reasoningRoomTokens: 0 },
        model,
        strictRoute,
        () => Promise.resolve(9000),
        () => [larger],
      ),
    ),
  );
  assert.deepEqual(
    [refused.code, refused.status, refused.param, refused.extra],
    [
      'context_length_exceeded',
      400,
      'messages',
      {
        model: 'capable',
        context_length_limit: 8192,
        prompt_tokens: 9000,
        max_tokens: 8192,
        suggested_models: [{ id: 'larger', context_length: 32_768 }],
      },
    ],
  );
  assert.match(refused.message, /Lower max_tokens, trim the prompt, or choose a model with a larger context/);
});

test('what is fitted fits, is capped, and is at least one token', async () => {
  const nothing = fc.constant(undefined);
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 80_000 }),
      fc.option(fc.integer({ min: 1, max: 80_000 })),
      fc.oneof(nothing, fc.integer({ min: 1, max: 120_000 })),
      fc.integer({ min: 1, max: 100_000 }),
      fc.constantFrom(chatRoute, strictRoute, windowRoute),
      fc.integer({ min: 0, max: 24_576 }),
      async (window, cap, asked, counted, route, room) => {
        const reported = await fitted({ rule: '', window, cap, asked, counted, route, room, expected: 0 });
        const heeded = asked !== undefined && asked <= window ? asked : undefined;
        if (reported instanceof ApiError) {
          // Refused only when the window is full, or by a family that does not retry what was asked for.
          const room = window - counted;
          assert.ok(
            room < 1 ||
              (!route.retryWithoutMaxTokens && heeded !== undefined && Math.min(heeded, cap ?? heeded) > room),
          );
          return;
        }
        const { maxTokens } = reported;
        assert.ok(maxTokens >= 1);
        assert.ok(maxTokens <= (cap ?? Infinity));
        // Counted, the sum fits; else the bound did, and the bound is above every count.
        const longest = maxTokens + reported.reasoningRoomTokens;
        assert.ok(reported.promptTokens + longest <= window);
        assert.ok(reported.reasoningRoomTokens >= 0 && reported.reasoningRoomTokens <= room);
        assert.ok(longest <= (cap ?? Infinity));
        if (heeded !== undefined && counted + heeded <= window)
          assert.equal(maxTokens, Math.min(heeded, cap ?? heeded));
      },
    ),
    { numRuns: 2000 },
  );
});

test('retryTokens: what the window leaves after the count of the backend', () => {
  const model: Model = { ...capableModel, contextLength: 1000, maxOutputTokens: null };
  assert.equal(retryTokens(model, { promptTokens: 900, windowTokens: undefined }), 100);
  assert.equal(retryTokens(model, { promptTokens: 999, windowTokens: undefined }), 1);
  assert.equal(retryTokens(model, { promptTokens: 1000, windowTokens: undefined }), undefined);
  assert.equal(retryTokens(model, { promptTokens: 5000, windowTokens: undefined }), undefined);
  assert.equal(retryTokens(model, { promptTokens: undefined, windowTokens: undefined }), undefined);
  // What the backend has is what there is.
  assert.equal(retryTokens(model, { promptTokens: 700, windowTokens: 800 }), 100);
  assert.equal(retryTokens(model, { promptTokens: 900, windowTokens: 800 }), undefined);
  assert.equal(retryTokens({ ...model, maxOutputTokens: 50 }, { promptTokens: 900, windowTokens: undefined }), 50);
});

test('the bound of a prompt counts everything of it that a template prints', () => {
  const text = '😀'.repeat(100);
  const bytes = Buffer.byteLength(text);
  const parts = [{ type: 'text', text }] as const;
  const messages: readonly Message[] = [
    { role: 'system', content: parts },
    { role: 'user', content: [...parts, ...parts] },
    {
      role: 'assistant',
      content: parts,
      reasoning: [{ text, signature: undefined }],
      toolCalls: [{ id: text, name: text, arguments: text }],
    },
    { role: 'tool', toolCallId: text, content: parts },
  ];
  const empty = promptTokenBound({ type: 'messages', messages: [] }, []);
  for (const [index, fields] of [1, 2, 5, 2].entries()) {
    const message = messages[index];
    assert.ok(message !== undefined);
    const alone = promptTokenBound({ type: 'messages', messages: [message] }, []);
    assert.ok(alone >= empty + fields * bytes, `message ${index}: ${alone}`);
  }
  const tool = {
    type: 'function',
    name: text,
    description: text,
    parameters: { type: 'object', properties: { [text]: {} } },
  };
  assert.ok(promptTokenBound({ type: 'messages', messages: [] }, [tool, tool]) >= empty + 2 * 3 * bytes);
  assert.equal(promptTokenBound({ type: 'token-ids', prompts: [[1, 2, 3], [4]] }, []), 4);
  assert.ok(promptTokenBound({ type: 'texts', prompts: [text] }, []) >= bytes);
});

async function fitted({
  window,
  cap,
  asked,
  counted,
  route = chatRoute,
  room = 0,
}: Example): Promise<Fitted | ApiError> {
  const model: Model = { ...capableModel, contextLength: window, maxOutputTokens: cap };
  const request = {
    ...requestOf(typeof counted === 'number' ? counted : 1),
    maxTokens: asked,
    reasoningRoomTokens: room,
  };
  const count = (): Promise<number | undefined> => {
    assert.notEqual(counted, 'unasked', 'the engine was asked to count');
    return Promise.resolve(typeof counted === 'number' ? counted : undefined);
  };
  try {
    return await fit(request, model, route, count, () => []);
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error;
  }
}

async function caught(promise: Promise<unknown>): Promise<ApiError> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof ApiError);
    return error;
  }
  return assert.fail('nothing was refused');
}

/** Each prompt of a batch has the window for itself, and the hold counts all of them (contracts §1.1). */
test('a batch: the longest prompt decides the length, their sum the hold', async () => {
  const model: Model = { ...capableModel, contextLength: 100, maxOutputTokens: null };
  const asked: string[] = [];
  const fitBatch = async (
    prompt: GenerationRequest['prompt'],
    maxTokens: number | undefined,
    counts: ReadonlyMap<string, number>,
  ) =>
    fit(
      { ...chatRequest(), prompt, tools: [], maxTokens, reasoningRoomTokens: 0 },
      model,
      { defaultMaxTokens: 16, retryWithoutMaxTokens: false },
      (only) => {
        assert.ok(only.type === 'texts');
        asked.push(...only.prompts);
        return Promise.resolve(counts.get(only.prompts[0] ?? ''));
      },
      () => [],
    );
  const texts = (...prompts: readonly string[]) => ({ type: 'texts', prompts }) as const;
  const long = 'x'.repeat(95);
  const none = new Map<string, number>();

  // 60 bytes each: together more than the window, and nobody is asked.
  const many = await fitBatch(texts(...new Array<string>(5).fill('y'.repeat(60))), undefined, none);
  assert.deepEqual([many.maxTokens, many.promptTokens, many.counted, asked], [16, 5 * 61, false, []]);

  // Only the one that may be too long is counted.
  const one = await fitBatch(texts('short', long), 20, new Map([[long, 30]]));
  assert.deepEqual([one.maxTokens, one.promptTokens, one.counted, asked], [20, 6 + 30, false, [long]]);
  const all = await fitBatch(texts(long), 20, new Map([[long, 30]]));
  assert.deepEqual([all.promptTokens, all.counted], [30, true]);
  await assert.rejects(fitBatch(texts('short', long), 20, new Map([[long, 90]])), { code: 'context_length_exceeded' });

  // Ids are counted already.
  asked.length = 0;
  const ids = (...lengths: readonly number[]) =>
    ({ type: 'token-ids', prompts: lengths.map((length) => new Array<number>(length).fill(1)) }) as const;
  const counted = await fitBatch(ids(80, 80), 20, none);
  assert.deepEqual([counted.maxTokens, counted.promptTokens, counted.counted], [20, 160, true]);
  await assert.rejects(fitBatch(ids(10, 81), 20, none), { code: 'context_length_exceeded' });
  assert.deepEqual(asked, []);
  // An absent `max_tokens` is what the window leaves, where that is less.
  assert.equal((await fitBatch(ids(95), undefined, none)).maxTokens, 5);
});

test('a text that fits the window by no tokenizer is refused before anything is counted', async () => {
  const count = (): never => assert.fail('counted');
  const model = { ...capableModel, contextLength: 1_000, maxOutputTokens: null };
  const ask = async (characters: number, counted: () => Promise<number>) =>
    await fit({ ...requestOf(characters), reasoningRoomTokens: 0 }, model, strictRoute, counted, () => []);
  await assert.rejects(ask(64_001, count), (error: unknown) => (error as ApiError).code === 'context_length_exceeded');
  // Runs of blanks: 64 of them for each token.
  assert.ok((await ask(64_000, () => Promise.resolve(900))).maxTokens > 0);
});
