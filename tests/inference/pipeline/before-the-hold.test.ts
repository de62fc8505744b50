/**
 * What is done before a request is held (docs/decisions/052-work-behind-limits.md), how its prompt is counted, and what is learned of its
 * length (docs/money.md, "The hold").
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { holdStepTokens } from '../../../src/billing/bill.ts';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import type { Order } from '../../../src/inference/pipeline/order.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { costOf, openCounter } from '../../billing/bills.ts';
import { pngOf } from '../../support/image-files.ts';
import { fullCapabilities } from './models.ts';
import { likelyTokens, played, promptTokens, refused, type Course } from './played.ts';

/** The prompt cannot have more: its bytes, a message and a template. */
const boundTokens = 146;
const context = 4_096;
/** With the bound they do not fit the window, with the count they do: the prompt is counted before anything is held. */
const counts: Course = { maxTokens: context - promptTokens };
const silent = { fault: { after_tokens: 0, type: 'hang' } } as const;
const overloaded = { fault: { after_tokens: 0, type: 'error', code: 'backend_overloaded' } } as const;

/** An engine that counts so, and each time it was asked. */
function counting(answer: number | 'fails' | undefined, asked: number[] = []): Pick<Engine, 'countTokens'> {
  return {
    countTokens: () => {
      asked.push(1);
      return answer === 'fails' ? Promise.reject(new Error('no')) : Promise.resolve(answer);
    },
  };
}

const backendOf = (script: object, engine: Partial<Engine>): Course => ({
  backends: [{ label: 'a', script: { say: [{ text: 'one two' }], prompt_tokens: promptTokens, ...script }, engine }],
});

const address = 'https://images.test/a.png';
const seen = (...urls: readonly string[]): Course => ({
  image: pngOf(3, 2),
  model: { capabilities: fullCapabilities },
  body: {
    messages: [
      {
        role: 'user',
        content: [{ type: 'text', text: 'hi' }, ...urls.map((url) => ({ type: 'image_url', image_url: { url } }))],
      },
    ],
  },
});
/** What an image may take before its size is known, and then. */
const unknown = { likely: 20, most: 400 };
const known = { likely: 60, most: 90 };
const images: Pick<Engine, 'imageTokens'> = { imageTokens: (size) => (size === undefined ? unknown : known) };

test('a prompt is counted once, and only where its bound is not paid or does not fit', async (t) => {
  const counter = await openCounter(t);
  const least = costOf(promptTokens, 100);
  const bound = costOf(boundTokens, 100);
  for (const [name, course, answer, times, reported, held] of [
    ['the bound is paid', { maxTokens: 100, credit: bound }, 5, 0, null, bound],
    ['the bound is not paid, the count is', { maxTokens: 100, credit: bound - 1n }, 5, 1, null, least],
    ['the count is just paid', { maxTokens: 100, credit: least }, 5, 1, null, least],
    ['the count is not paid', { maxTokens: 100, credit: least - 1n }, 5, 1, 'insufficient_credits', null],
    ['nobody can count', { maxTokens: 100, credit: bound - 1n }, undefined, 1, 'insufficient_credits', null],
    [
      'the output alone is not paid',
      { maxTokens: 100, credit: costOf(0, 100) - 1n },
      5,
      0,
      'insufficient_credits',
      null,
    ],
    [
      'an image, which is added to the count',
      { ...seen(address), maxTokens: 100, credit: costOf(5 + known.most, 100) },
      5,
      1,
      null,
      costOf(5 + known.most, 100),
    ],
    // It is counted already.
    [
      'counted, and paid',
      { ...counts, credit: costOf(promptTokens, holdStepTokens) },
      5,
      1,
      null,
      costOf(5, holdStepTokens),
    ],
    [
      'counted, and not paid',
      { ...counts, credit: costOf(promptTokens, holdStepTokens) - 1n },
      5,
      1,
      'insufficient_credits',
      null,
    ],
  ] as const satisfies readonly (readonly [string, Course, number | undefined, number, string | null, bigint | null])[])
    await t.test(name, async () => {
      const asked: number[] = [];
      const all = { ...course, ...backendOf({}, { ...images, ...counting(answer, asked) }) };
      if (held === null) assert.equal((await refused(counter, all)).reported, reported);
      else {
        const { receipt } = await played(counter, all);
        assert.deepEqual([receipt.holdMicrocents, receipt.costMicrocents], [held, costOf(promptTokens, 2)]);
      }
      assert.equal(asked.length, times);
    });
});

test('who leaves before the model says anything pays for the prompt as it is counted, and else as it is estimated', async (t) => {
  const counter = await openCounter(t);
  for (const [name, course, answer, prompt] of [
    ['counted when it leaves', {}, 6, 6],
    ['with an image', seen(address), 6, 6 + known.likely],
    ['nobody can count', {}, undefined, likelyTokens],
    ['counting fails', {}, 'fails', likelyTokens],
    ['counted before', counts, promptTokens, promptTokens],
  ] as const satisfies readonly (readonly [string, Course, number | 'fails' | undefined, number])[])
    await t.test(name, async () => {
      const { receipt } = await played(counter, {
        ...course,
        ...backendOf(silent, { ...images, ...counting(answer) }),
        cancel: ['client-left', 'before the first token'],
      });
      assert.deepEqual([receipt.promptTokens, receipt.costMicrocents], [prompt, costOf(prompt, 0)]);
      assert.equal(receipt.counted, true);
    });
});

test('work before the hold: limits count what it found, and it is all given back', async (t) => {
  const counter = await openCounter(t);
  const one = seen(address);
  for (const [name, course, prompt] of [
    ['no work', {}, likelyTokens],
    ['a prompt that is counted', { ...counts, maxTokens: context - promptTokens }, likelyTokens],
    ['an image of an address', one, likelyTokens + known.likely],
    ['two of one address, which is asked once', seen(address, address), likelyTokens + 2 * known.likely],
  ] as const satisfies readonly (readonly [string, Course, number])[])
    await t.test(name, async () => {
      const bytes: number[] = [];
      const memory = {
        take: (count: number) => void bytes.push(count),
        give: (count: number) => void bytes.push(-count),
      };
      const maxTokens = course.maxTokens ?? 100;
      const { claimed, receipt, isPrepared } = await played(counter, {
        ...course,
        ...backendOf({}, images),
        maxTokens,
        facts: { memory },
      });
      assert.equal(claimed[0], prompt + Math.min(maxTokens, holdStepTokens));
      assert.equal(isPrepared, name === 'a prompt that is counted');
      assert.equal(receipt.costMicrocents, costOf(promptTokens, 2));
      assert.equal(
        bytes.reduce((sum, each) => sum + each, 0),
        0,
      );
      assert.equal(bytes.length > 0, course.image !== undefined);
    });
});

test('another model is counted for only where its bound is not paid, and left out where the count is not', async (t) => {
  const counter = await openCounter(t);
  const dear = { input: 10_000_000n, output: 70_000_000n, cacheRead: 1_000_000n };
  const bound = costOf(boundTokens, 100, dear);
  for (const [name, credit, answer, serves, times] of [
    ['the bound is paid', bound, undefined, true, 0],
    ['the bound is not paid, the count is', bound - 1n, 5, true, 1],
    ['the count is not paid', costOf(5, 100, dear) - 1n, 5, false, 1],
    ['nobody can count', bound - 1n, undefined, false, 1],
    ['counting fails', bound - 1n, 'fails', false, 1],
  ] as const)
    await t.test(name, async () => {
      const asked: number[] = [];
      const { receipt } = await played(counter, {
        ...backendOf(overloaded, {}),
        otherEngine: counting(answer, asked),
        otherPrices: [dear],
        maxTokens: 100,
        credit,
      });
      assert.deepEqual([receipt.modelId, asked.length], [serves ? 'other' : 'demo', times]);
      assert.equal(receipt.costMicrocents, serves ? costOf(promptTokens, 2, dear) : 0n);
    });
});

/** An order with work to do, after which it is as `to` says. */
const prepares = (run: (order: Order) => Promise<Order>): Course => ({
  placed: (order) => ({ ...order, preparation: { run: () => run(order) } }),
});
const done: Course = prepares((order) => Promise.resolve(order));
const reason = (order: Order): Error => new ApiError('unsupported_value', `of ${order.model.id}`);

test('work before the hold that comes to nothing: the error, and nothing is recorded or kept', async (t) => {
  const counter = await openCounter(t);
  const signal = new AbortController();
  const stopped = (by: unknown): Course => ({
    ...prepares(() => {
      signal.abort('deadline');
      return Promise.reject(by as Error);
    }),
    facts: { signal: signal.signal },
  });
  for (const [name, course, reported, isPrepared] of [
    ['next to no credit: none is done', { ...done, credit: 1n }, 'insufficient_credits', false],
    ['one token each way has to be there', { ...done, credit: costOf(1, 1) - 1n }, 'insufficient_credits', false],
    ['and then the whole is not', { ...done, credit: costOf(1, 1) }, 'insufficient_credits', true],
    ['an image, and next to no credit', { ...seen(address), credit: 1n }, 'insufficient_credits', false],
    ['it finds a fault', prepares((order) => Promise.reject(reason(order))), 'unsupported_value', false],
    [
      'it finds more than the limit has',
      {
        ...prepares((order) => Promise.resolve({ ...order, promptTokensLikely: 2_000_000 })),
        key: { rates: { tokensPerDay: 1_500 } },
        maxTokens: 100,
      },
      'rate_limit_exceeded',
      true,
    ],
    ['the request ends meanwhile', stopped('deadline'), 'backend_timeout', false],
    ['a fault is found as it ends', stopped(new ApiError('unsupported_value', 'x')), 'unsupported_value', false],
    ['the image is none', { ...seen(address), image: Buffer.from('text') }, 'model_request_rejected', false],
  ] as const satisfies readonly (readonly [string, Course, string, boolean])[])
    await t.test(name, async () => {
      const all = await refused(counter, course);
      assert.deepEqual([all.reported, all.isPrepared], [reported, isPrepared]);
    });
});

test('another model gets the images that were fetched', async (t) => {
  const counter = await openCounter(t);
  const asked: string[] = [];
  const { receipt } = await played(counter, {
    ...seen(address),
    ...backendOf(overloaded, images),
    otherPrices: [{ input: 1n, output: 1n, cacheRead: 1n }],
    facts: { falls: ({ request: { prompt } }) => void asked.push(...typesIn(prompt)) },
  });
  assert.deepEqual([receipt.ending, receipt.backend, asked], ['finished', 'other', ['text', 'image']]);
});

const typesIn = (prompt: Order['request']['prompt']): readonly string[] =>
  prompt.type === 'messages' ? prompt.messages.flatMap(({ content }) => content.map(({ type }) => type)) : [];

test('what a backend reports of a prompt is learned for the next one of the account', async (t) => {
  const counter = await openCounter(t);
  const zdr = { ...fullCapabilities, zdr: true };
  for (const [name, course, learned] of [
    ['reported', {}, promptTokens],
    ['not reported', backendOf({ usage: 'none' }, {}), likelyTokens],
    ['counted before', counts, likelyTokens],
    ['with images, which are not in the bytes', { ...seen(address), ...backendOf({}, images) }, likelyTokens],
    // One that would be taken for none.
    [
      'with an image that takes a token',
      { ...seen(address), ...backendOf({}, { imageTokens: () => ({ likely: 1, most: 1 }) }) },
      likelyTokens,
    ],
    [
      'under zero data retention',
      { facts: { zdr: true }, model: { capabilities: zdr, zdrCapabilities: zdr } },
      likelyTokens,
    ],
    ['failed', { script: { fault: { after_tokens: 1, type: 'error' } } }, likelyTokens],
  ] as const satisfies readonly (readonly [string, Course, number])[])
    await t.test(name, async () => {
      const { receipt, services } = await played(counter, course);
      assert.equal(services.pool.promptLengths.likely(receipt.accountId, boundTokens), learned);
    });
});
