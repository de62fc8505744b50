/**
 * Requests with several attempts, waits and names: who is charged for what, and what their rows keep. Each backend counts the prompt
 * differently, so that the charge says whose usage it is.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Receipt } from '../../../src/billing/hold.ts';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import { scriptRule } from '../../../src/inference/engines/scripted/script-schema.ts';
import { createScriptedEngine } from '../../../src/inference/engines/scripted/scripted-engine.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import type { UsageAttempt } from '../../../src/store/schema/tables.ts';
import type { Ending } from '../../../src/store/ledger.ts';
import { costOf, openCounter, prices } from '../../billing/bills.ts';
import { pickOf, played, type Course } from './played.ts';
import type { PlayedBackend } from './runs.ts';

const says = { say: [{ text: 'one two' }] };
const tokensAt = { a: 4, b: 6, c: 7, other: 9 } as const;
type Label = keyof typeof tokensAt;
const at = (label: Label, script: Partial<PlayedBackend['script']> = {}, more: Partial<PlayedBackend> = {}) => ({
  label,
  script: { ...says, prompt_tokens: tokensAt[label], ...script },
  ...more,
});
const breaks = { fault: { after_tokens: 0, type: 'error' } } as const;
const isFull = { fault: { after_tokens: 0, type: 'error', code: 'backend_overloaded' } } as const;
const hangs = { fault: { after_tokens: 0, type: 'hang' } } as const;
const stallsIn = { fault: { after_tokens: 1, type: 'hang' } } as const;
const breaksIn = { fault: { after_tokens: 1, type: 'error' } } as const;
/** Longer than it takes until the second one is asked. */
const late = { first_token_ms: 300 };
const isDown = { engine: { status: () => ({ state: 'down', detail: 'closed' }) as const } };

/** Of an attempt: where, what it failed with, and what else is said of it. */
type Kept = readonly [Label, string | null, Pick<UsageAttempt, 'hedge' | 'asked' | 'model'>?];
const keptOf = (attempts: Receipt['attempts']): readonly Kept[] | undefined =>
  attempts?.map(({ backend, failed, hedge, asked, model }): Kept => {
    const more = Object.entries({ hedge, asked, model }).filter(([, value]) => value !== undefined);
    return more.length === 0 ? [backend as Label, failed] : [backend as Label, failed, Object.fromEntries(more)];
  });

/** Of a backend that refuses the first request, or says nothing of the prompt before its text. */
const inner = createScriptedEngine({ name: 'demo', contextLength: 4_096, scripts: [scriptRule(at('a').script)] });
const refusesLength = (): Partial<Engine> => {
  let isFirst = true;
  return {
    generate: async (...given) => {
      if (!isFirst) return await inner.generate(...given);
      isFirst = false;
      throw new ApiError('context_length_exceeded', 'too long', { extra: { prompt_tokens: 4_000 } });
    },
  };
};
const beginsSilently: Partial<Engine> = {
  generate: async (request, signal, take) => {
    const usage = { promptTokens: 4, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
    const goesOn = await take([
      { type: 'start', promptTokens: 4 },
      { type: 'usage', usage },
    ]);
    if (goesOn) await inner.generate(request, signal, take);
  },
};

const byName: Pick<Course, 'model' | 'body'> = {
  model: { aliases: [{ name: 'best', isListed: false, answers: 'model' }] },
  body: { model: 'best' },
};
const hedged = { model: { hedge: 10 } };
const dear = { ...prices, input: 3n * prices.input };
const broken = 'backend_http_error';

/** What its backends do, how it ends, who is charged for (null: nobody), and the attempts that its row keeps, the last of them `backend`. */
const rows: readonly (readonly [
  string,
  Course,
  Ending,
  charged: { readonly at: Label; readonly prompt?: number; readonly completion?: number } | null,
  backend: Label | null,
  attempts: readonly Kept[] | undefined,
])[] = [
  ['one backend: there is nothing to tell', { backends: [at('a')] }, 'finished', { at: 'a' }, 'a', undefined],
  [
    'one backend, and another name of the model',
    { ...byName, backends: [at('a')] },
    'finished',
    { at: 'a' },
    'a',
    [['a', null, { asked: 'best' }]],
  ],
  [
    'no backend, and another name of the model',
    { ...byName, backends: [at('a', {}, isDown)] },
    'failed',
    null,
    null,
    undefined,
  ],
  [
    'one backend that refuses the length, and is asked for a shorter answer',
    { backends: [at('a', {}, { engine: refusesLength() })] },
    'finished',
    { at: 'a' },
    'a',
    [
      ['a', 'context_length_exceeded'],
      ['a', null],
    ],
  ],
  [
    'one backend whose first batch says nothing',
    { backends: [at('a', {}, { engine: beginsSilently })] },
    'finished',
    { at: 'a' },
    'a',
    undefined,
  ],
  ['two, and the first answers', { backends: [at('a'), at('b')] }, 'finished', { at: 'a' }, 'a', [['a', null]]],
  [
    'the first fails: the second answers',
    { backends: [at('a', breaks), at('b'), at('c')] },
    'finished',
    { at: 'b' },
    'b',
    [
      ['a', broken],
      ['b', null],
    ],
  ],
  [
    'all of three fail',
    { backends: [at('a', breaks), at('b', breaks), at('c', breaks)] },
    'failed',
    null,
    'c',
    [
      ['a', broken],
      ['b', broken],
      ['c', broken],
    ],
  ],
  [
    'the second fails in its answer: nobody is asked again',
    { ...byName, backends: [at('a', isFull), at('b', breaksIn), at('c')] },
    'failed',
    null,
    'b',
    [
      ['a', 'backend_overloaded', { asked: 'best' }],
      ['b', broken],
    ],
  ],
  [
    'the client leaves the second in its answer',
    { backends: [at('a', breaks), at('b', stallsIn)], cancel: ['client-left', 'in the answer'] },
    'client_left',
    { at: 'b', completion: 1 },
    'b',
    [
      ['a', broken],
      ['b', null],
    ],
  ],
  [
    'the client leaves the second before it says anything: the counted input',
    { backends: [at('a', breaks), at('b', hangs)], cancel: ['client-left', 'before the first token'] },
    'client_left',
    { at: 'a', completion: 0 },
    'b',
    [
      ['a', broken],
      ['b', null],
    ],
  ],
  [
    'the first of two that race is overtaken',
    { ...hedged, backends: [at('a', hangs), at('b')] },
    'finished',
    { at: 'b' },
    'b',
    [
      ['a', null, { hedge: 'overtaken' }],
      ['b', null, { hedge: 'second' }],
    ],
  ],
  [
    'the first of two that race wins after all',
    { ...hedged, backends: [at('a', late), at('b', hangs)] },
    'finished',
    { at: 'a' },
    'a',
    [
      ['a', null],
      ['b', null, { hedge: 'second_stopped' }],
    ],
  ],
  [
    'the first of two that race wins, and the client leaves',
    {
      ...hedged,
      backends: [at('a', { ...late, ...stallsIn }), at('b', hangs)],
      cancel: ['client-left', 'in the answer'],
    },
    'client_left',
    { at: 'a', completion: 1 },
    'a',
    [
      ['a', null],
      ['b', null, { hedge: 'second_stopped' }],
    ],
  ],
  [
    'the first of two that race wins, and fails in its answer',
    { ...hedged, backends: [at('a', { ...late, ...breaksIn }), at('b', hangs)] },
    'failed',
    null,
    'b',
    [
      ['a', broken],
      ['b', null, { hedge: 'second_stopped' }],
    ],
  ],
  [
    'the second of two that race fails',
    { ...hedged, backends: [at('a', late), at('b', breaks)] },
    'finished',
    { at: 'a' },
    'a',
    [
      ['a', null],
      ['b', broken, { hedge: 'second' }],
    ],
  ],
  [
    'another model serves, and the first was asked for by another name',
    { ...byName, backends: [at('a', isFull), at('b', isFull)], otherPrices: [dear] },
    'finished',
    { at: 'other' },
    'other',
    [
      ['a', 'backend_overloaded', { asked: 'best', model: 'demo' }],
      ['b', 'backend_overloaded', { model: 'demo' }],
      ['other', null],
    ],
  ],
  [
    'another model serves a model that has no backend',
    { ...byName, backends: [at('a', {}, isDown)], otherPrices: [dear] },
    'finished',
    { at: 'other' },
    'other',
    [['other', null, { asked: 'best' }]],
  ],
  [
    'another model fails too',
    { backends: [at('a', isFull), at('b', isFull)], otherPrices: [dear], otherScript: breaks },
    'failed',
    null,
    'other',
    [
      ['a', 'backend_overloaded', { model: 'demo' }],
      ['b', 'backend_overloaded', { model: 'demo' }],
      ['other', broken, { model: 'other' }],
    ],
  ],
  [
    'another model fails in its answer',
    { backends: [at('a', isFull)], otherPrices: [dear], otherScript: breaksIn },
    'failed',
    null,
    'other',
    [
      ['a', 'backend_overloaded', { model: 'demo' }],
      ['other', broken],
    ],
  ],
  [
    'the client leaves another model before it says anything: its input, counted',
    {
      backends: [at('a', isFull)],
      otherPrices: [dear],
      otherScript: hangs,
      cancel: ['client-left', 'before the first token'],
    },
    'client_left',
    { at: 'other', completion: 0 },
    'other',
    [
      ['a', 'backend_overloaded', { model: 'demo' }],
      ['other', null],
    ],
  ],
  ...(['while another model is looked for', 'when another model was found'] as const).map(
    (when) =>
      [
        `the client leaves ${when}: the model that failed is not charged for`,
        { backends: [at('a', isFull)], otherPrices: [dear], cancel: ['client-left', when] },
        'client_left',
        null,
        'a',
        [['a', 'backend_overloaded', { model: 'demo' }]],
      ] as (typeof rows)[number],
  ),
];

test('several attempts: one of them is charged at most, and the row keeps them all', async (t) => {
  const counter = await openCounter(t);
  for (const [name, course, ending, charged, backend, attempts] of rows)
    await t.test(name, async () => {
      const { otherScript, ...rest } = course;
      const { receipt, used } = await played(counter, {
        ...rest,
        otherScript: { prompt_tokens: tokensAt.other, ...otherScript },
      });
      assert.deepEqual([receipt.ending, receipt.backend, keptOf(receipt.attempts)], [ending, backend, attempts]);
      const [prompt, completion] = charged === null ? [0, 0] : [tokensAt[charged.at], charged.completion ?? 2];
      const at = charged?.at === 'other' ? dear : prices;
      assert.equal(receipt.costMicrocents, charged === null ? 0n : costOf(prompt, completion, at));
      assert.equal(receipt.holdMicrocents >= receipt.costMicrocents, true);
      assert.equal(used('tokens'), prompt + completion);
    });
});

test('a row keeps its labels, its times and its waits', async (t) => {
  const counter = await openCounter(t);
  const ahead = { tiers: 1, own: 2, others: 3 };
  const wait = (waitedMs: number, expectedMs?: number) => ({
    ahead,
    expectedMs,
    waitedMs,
    isOver: true,
    isForStart: false,
  });
  for (const [course, expected] of [
    [{}, { tags: null, queued: undefined }],
    [{ key: { tags: ['one'] } }, { tags: '["one"]' }],
    [{ key: { tags: ['one', 'two'] } }, { tags: '["one","two"]' }],
    [{ facts: { waits: [wait(30, 40)] } }, { queued: { waitMs: 30, expectedMs: 40, ahead } }],
    // Twice: at the backend that failed, and at the next one. What was in front is that of the first time.
    [
      { facts: { waits: [wait(30), { ...wait(12, 50), ahead: { tiers: 0, own: 0, others: 0 } }] } },
      { queued: { waitMs: 42, expectedMs: null, ahead } },
    ],
  ] as const satisfies readonly (readonly [Course, Partial<Receipt>])[]) {
    const { receipt } = await played(counter, course);
    assert.deepEqual(pickOf(receipt, expected), expected);
    assert.equal(receipt.endedAt - receipt.startedAt, receipt.totalMs);
    assert.ok(receipt.firstTokenMs! >= 0 && receipt.firstTokenMs! <= receipt.totalMs);
  }
});
