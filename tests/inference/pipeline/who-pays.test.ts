/**
 * The table of endings (docs/money.md): what each request that had a hold is recorded as, what it is charged, what it counts towards
 * limits, and what its client is reported, in this process; whole services are in `tests/endings/`.
 */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';

import type { Receipt } from '../../../src/billing/hold.ts';
import { isCharged } from '../../../src/billing/endings.ts';
import type { CancelReason } from '../../../src/inference/pipeline/cancellation.ts';
import { costOf, openCounter } from '../../billing/bills.ts';
import type { Ending } from '../../../src/store/ledger.ts';
import { begin, budget, likelyTokens, pickOf, played, promptTokens, type Course } from './played.ts';

/** How each cancelled request is recorded, whether it is charged, and what its client is reported, if it is still there. */
const cancellations: readonly (readonly [CancelReason, Ending, boolean, string, string | null])[] = [
  ['client-left', 'client_left', true, 'http_408', null],
  ['reader-stalled', 'reader_stalled', true, 'http_408', null],
  ['revoked', 'revoked', true, 'invalid_api_key', 'invalid_api_key'],
  ['drain', 'drained', false, 'no_healthy_backends', 'no_healthy_backends'],
  ['deadline', 'deadline', false, 'backend_timeout', 'backend_timeout'],
  ['lost', 'lost', false, 'internal_error', 'internal_error'],
  ['cancelled', 'cancelled', false, 'http_409', 'http_409'],
];

test('cancelled requests', async (t) => {
  const counter = await openCounter(t);
  for (const [reason, ending, pays, reported, errorCode] of cancellations)
    for (const when of ['at once', 'before the first token', 'in the answer'] as const)
      await t.test(`${reason}, ${when}: ${ending}, ${pays ? 'charged' : 'not charged'}`, async () => {
        const isInAnswer = when === 'in the answer';
        const script = { fault: { after_tokens: isInAnswer ? 2 : 0, type: 'hang' as const } };
        const { receipt, isWhole, used, ...rest } = await played(counter, { script, cancel: [reason, when] });
        const completion = isInAnswer ? 2 : 0;
        // Who leaves before the model has said how long the prompt is pays for our count of it, and for nothing before it was asked.
        const prompt = isInAnswer || (pays && when === 'before the first token') ? promptTokens : 0;
        const list = costOf(prompt, completion);
        assert.deepEqual(
          [receipt.ending, receipt.promptTokens, receipt.completionTokens, receipt.costMicrocents, receipt.finish],
          [ending, prompt, completion, pays ? list : 0n, null],
        );
        assert.deepEqual([receipt.unchargedMicrocents, receipt.counted], [pays ? 0n : list, !isInAnswer]);
        assert.deepEqual([rest.reported, receipt.errorCode, isWhole], [reported, errorCode, false]);
        assert.deepEqual(rest.extra, ['drain', 'deadline'].includes(reason) ? { model: 'demo' } : {});
        assert.equal(rest.retryAfterSeconds, reason === 'drain' || reason === 'lost' ? 1 : undefined);
        assert.deepEqual([used('tokens'), used('requests')], [pays ? prompt + completion : 0, 1]);
      });
});

type Outcome = Partial<Receipt> & { readonly ending: Ending };

/** What happens, what is recorded of it, and whether the client gets a whole answer; the error it is reported is the recorded one. */
const others: readonly (readonly [string, Course, Outcome, isWhole: boolean])[] = [
  ['finished', {}, { ending: 'finished', completionTokens: 2, finish: 'stop', errorCode: null, counted: false }, true],
  ['an empty answer', { script: { say: [] } }, { ending: 'finished', completionTokens: 0, finish: 'stop' }, true],
  [
    'failed before the first token',
    { script: { fault: { after_tokens: 0, type: 'error', code: 'backend_overloaded' } } },
    { ending: 'failed', completionTokens: 0, finish: null, errorCode: 'backend_overloaded' },
    false,
  ],
  [
    'failed after it',
    { script: { fault: { after_tokens: 1, type: 'error' } } },
    { ending: 'failed', completionTokens: 1, finish: null, errorCode: 'backend_http_error' },
    false,
  ],
  [
    'ended without a finish',
    { script: { fault: { after_tokens: 1, type: 'cut' } } },
    { ending: 'failed', completionTokens: 1, finish: null, errorCode: 'backend_http_error' },
    false,
  ],
  [
    'a reader that takes no more',
    { script: { fault: { after_tokens: 2, type: 'hang' } }, leaves: true },
    { ending: 'client_left', completionTokens: 2, finish: null, errorCode: null },
    false,
  ],
  [
    'the longest answer',
    { script: { repeat: 600 }, maxTokens: 100 },
    { ending: 'finished', completionTokens: 100, finish: 'length', errorCode: null },
    true,
  ],
  [
    'credit that ends in the answer, which ends with the last batch that it pays for',
    { script: { repeat: 2_000 }, maxTokens: 4_000, credit: costOf(promptTokens, 2_304) + 1n },
    { ending: 'credit', completionTokens: 2_304, finish: 'length', errorCode: null },
    true,
  ],
];

test('requests that nobody cancels', async (t) => {
  const counter = await openCounter(t);
  for (const [name, course, expected, isWhole] of others)
    await t.test(`${name}: ${expected.ending}`, async () => {
      const { receipt, reported, used, ...rest } = await played(counter, course);
      assert.deepEqual(pickOf(receipt, expected), expected);
      const pays = expected.ending !== 'failed';
      const { promptTokens: prompt, completionTokens: completion } = receipt;
      assert.equal(prompt, pays || completion > 0 ? promptTokens : 0);
      assert.equal(receipt.costMicrocents, pays ? costOf(prompt, completion) : 0n);
      assert.deepEqual([used('tokens'), used('requests')], [pays ? prompt + completion : 0, 1]);
      assert.deepEqual([reported, rest.isWhole], [expected.errorCode ?? null, isWhole]);
    });
});

const fails = { fault: { after_tokens: 1, type: 'error' as const } };
/** Who pays, by the key: the plan, or the credit and these budgets. How many of the plan's and of the day's requests it was. */
const payers: readonly (readonly [string, Course, Partial<Receipt>, quota: number, requests: number])[] = [
  ['credit, and limits that other processes share', { sharesLimits: true }, { plan: null }, 0, 1],
  ['credit', {}, { plan: null, keyBudget: null, accountBudget: null, memberBudget: null }, 0, 1],
  [
    'credit and the budgets of the account, for all models and for this one',
    { hasBudgets: true },
    { plan: null, keyBudget: null, accountBudget: 'month@week', memberBudget: null },
    0,
    1,
  ],
  [
    'a plan: no budget',
    { key: { isPlanKey: true, budget: budget('month'), member: { id: 'member_1', budget: budget('day') } } },
    { plan: 'p', keyBudget: null, accountBudget: null, memberBudget: null, holdMicrocents: 0n, costMicrocents: 0n },
    1,
    1,
  ],
  [
    'a plan, whose request came to nothing',
    { key: { isPlanKey: true }, script: fails },
    { plan: 'p', ending: 'failed', costMicrocents: 0n },
    0,
    1,
  ],
  [
    'credit, for a line of a batch',
    { facts: { batchId: 'batch_1' } },
    { batchId: 'batch_1', ending: 'finished' },
    0,
    1,
  ],
  [
    'nobody, for a line of a batch that came to nothing and is tried again',
    { facts: { batchId: 'batch_1' }, script: fails },
    { batchId: 'batch_1', ending: 'failed' },
    0,
    0,
  ],
];

test('who pays', async (t) => {
  const counter = await openCounter(t);
  for (const [name, course, expected, quota, requests] of payers)
    await t.test(name, async () => {
      const facts = { startedAt: begin, ...course.facts };
      const { receipt, used } = await played(counter, { ...course, facts });
      assert.deepEqual(pickOf(receipt, expected), expected);
      assert.deepEqual([used('quota'), used('requests')], [quota, requests]);
    });
});

test('while a request runs, limits count its prompt and one step of its answer', async (t) => {
  const counter = await openCounter(t);
  for (const [maxTokens, isPlanKey, completion, pays] of [
    [100, false, 100, true],
    [3_000, false, 2_048, true],
    [3_000, true, 2_048, false],
  ] as const) {
    const { claimed } = await played(counter, { maxTokens, key: { isPlanKey } });
    assert.deepEqual(claimed, [likelyTokens + completion, pays ? Number(costOf(likelyTokens, completion)) : 0]);
  }
});

test('each ending is charged, or not, as the documentation says', () => {
  const text = fs.readFileSync('docs/money.md', 'utf8');
  const [, table] = /^## The table of endings\n\n[^\n]*\n[^\n]*\n(.*?)\n\n/ms.exec(text)!;
  const said = new Map<string, boolean>();
  for (const row of table!.split('\n')) {
    const [, , recorded, charge] = row.split('|').map((cell) => cell.trim());
    for (const [, ending] of recorded!.matchAll(/`(\w+)`/g))
      said.set(ending!, said.get(ending!) === true || !charge!.startsWith('nothing'));
  }
  assert.equal(said.size, 11);
  assert.deepEqual(
    [...said.keys()].filter((ending) => isCharged(ending as Ending)),
    [...said.keys()].filter((ending) => said.get(ending)),
  );
});

test('the time between two batches is known of each but the first, in seconds', async (t) => {
  const counter = await openCounter(t);
  const now = performance.now.bind(performance);
  let passedMs = 0;
  t.mock.method(performance, 'now', () => now() + passedMs);
  // With each batch that comes, a million seconds pass.
  const { services, batches } = await played(counter, { script: { repeat: 600 }, delivered: () => (passedMs += 1e9) });
  // The finish is a batch of its own for the client, but not of the model.
  assert.equal(services.gaps.length, batches - 2);
  assert.ok(batches > 3);
  for (const seconds of services.gaps) assert.ok(seconds >= 1e6 && seconds < 1e6 + 500, String(seconds));
});

const dear = { input: 3_000_000n, output: 9_000_000n, cacheRead: 1_000_000n };
const tooDear = { ...dear, input: 10n ** 12n };
const overloaded = { fault: { after_tokens: 0, type: 'error' as const, code: 'backend_overloaded' as const } };
const failed = { model: 'demo', reason: 'backend_overloaded', isSkipped: false };
const refused = { model: 'other', reason: 'insufficient_credits', isSkipped: true };
const otherFailed = { model: 'other', reason: 'backend_http_error', isSkipped: false };
/** What its model and the other ones do, what is recorded, and what is charged. */
const replaced: readonly (readonly [string, Course, Partial<Receipt>, bigint])[] = [
  [
    'another model serves: at its prices',
    { script: overloaded, otherPrices: [dear] },
    { ending: 'finished', modelId: 'other', errorCode: null, fallbacks: [failed] },
    costOf(promptTokens, 2, dear),
  ],
  [
    'one that costs more than there is is left out',
    { script: overloaded, otherPrices: [tooDear, dear] },
    { ending: 'finished', modelId: 'other', fallbacks: [failed, refused] },
    costOf(promptTokens, 2, dear),
  ],
  [
    'none is left: the first error, of the first model, and nothing is charged',
    { script: overloaded, otherPrices: [dear, tooDear], otherScript: { fault: { after_tokens: 0, type: 'error' } } },
    {
      ending: 'failed',
      modelId: 'demo',
      errorCode: 'backend_overloaded',
      fallbacks: [failed, otherFailed, refused],
    },
    0n,
  ],
  [
    'no other model serves what has begun',
    { script: { fault: { after_tokens: 1, type: 'error' } }, otherPrices: [dear] },
    { ending: 'failed', modelId: 'demo', errorCode: 'backend_http_error', fallbacks: undefined },
    0n,
  ],
];

test('another model in its place', async (t) => {
  const counter = await openCounter(t);
  for (const [name, course, expected, charged] of replaced)
    await t.test(name, async () => {
      const { receipt, reported } = await played(counter, course);
      assert.deepEqual(pickOf(receipt, expected), expected);
      assert.equal(receipt.costMicrocents, charged);
      assert.equal(reported, expected.errorCode ?? null);
    });
});
