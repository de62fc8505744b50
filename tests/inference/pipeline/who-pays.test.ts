/**
 * The table of endings (docs/money.md): what each request that had a hold is recorded as, what it is charged, what it counts towards
 * limits, and what its client is reported, in this process; whole services are in `tests/endings/`.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Receipt } from '../../../src/billing/hold.ts';
import type { ScriptSettings } from '../../../src/inference/engines/scripted/script-schema.ts';
import type { CancelReason } from '../../../src/inference/pipeline/cancellation.ts';
import type { RunningCall } from '../../../src/inference/pipeline/run.ts';
import type { Prices } from '../../../src/catalog/pricing.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { costOf, openCounter, type Counter } from '../../billing/bills.ts';
import { modelSubject } from '../../../src/store/budget.ts';
import type { Ending } from '../../../src/store/ledger.ts';
import { balanceOf, customer, uuid } from '../../store/fixture.ts';
import { requestOf, servicesFor } from './runs.ts';

const keyId = 'key_000000000000';
const credit = 1_000_000n;
const promptTokens = 5;
/** What the pipeline takes the prompt for until its length is known. */
const likelyTokens = 37;
const dayMs = 86_400_000;
const begin = Date.now();
const plan = { name: 'p', quota: { requests: 100, windowMs: dayMs } };

/** What its model does, and when the request is cancelled, or its reader takes no more. */
interface Course {
  readonly script?: Partial<ScriptSettings>;
  readonly cancel?: readonly [CancelReason, 'at once' | 'before the first token' | 'in the answer'];
  readonly leaves?: boolean;
  readonly credit?: bigint;
  readonly maxTokens?: number;
  readonly otherScript?: Partial<ScriptSettings>;
  readonly otherPrices?: readonly Prices[];
  /** Of its account. */
  readonly hasBudgets?: boolean;
  readonly facts?: Partial<RunningCall>;
  readonly key?: Partial<RunningCall['key']>;
}

let accounts = 0;

const budget = (per: 'month' | 'week' | 'day') => ({ amountMicrocents: credit, per });

async function budgetsFor(accountId: string, { ledger }: Counter['store']) {
  const own = { budget: budget('month'), modelBudgets: new Map([['demo', budget('week')]]) };
  for (const [subject, of] of [
    [accountId, own.budget],
    [modelSubject(accountId, 'demo'), budget('week')],
  ] as const) {
    const change = { kind: 'account_budget', subject, budget: of, spentBeforeMicrocents: 0n } as const;
    await ledger.setBudget({ ...change, at: begin, changeId: uuid() });
  }
  return own;
}

/** Plays a request of an account with a plan, and returns what there is of it in the end. */
async function played(counter: Counter, { script = {}, cancel, leaves = false, ...course }: Course) {
  const { store, billing } = counter;
  const accountId = `acct_${++accounts}`;
  const has = course.credit ?? credit;
  await customer(store, accountId, has);
  const settings: ScriptSettings = { say: [{ text: 'one two' }], prompt_tokens: promptTokens, ...script };
  const services = servicesFor(settings, counter, {
    plans: [plan],
    others: { say: settings.say, prompt_tokens: promptTokens, ...course.otherScript },
  });
  const cancelled = new AbortController();
  const stop = (at: 'at once' | 'before the first token' | 'in the answer'): void => {
    if (cancel?.[1] === at) cancelled.abort(cancel[0]);
  };
  const rates = { tokensPerDay: 1_000_000, requestsPerDay: 100, centsPerDay: 100 };
  const begins = await requestOf(services, accountId, cancelled.signal, {
    ...(course.maxTokens === undefined ? {} : { maxTokens: course.maxTokens }),
    otherPrices: course.otherPrices ?? [],
    facts: {
      account: { id: accountId, plan: 'p', ...(course.hasBudgets === true ? await budgetsFor(accountId, store) : {}) },
      key: { id: keyId, accountId, userId: null, name: '', expiresAt: null, rates, ...course.key },
      ...course.facts,
    },
  });
  const used = (kind: 'tokens' | 'requests' | 'quota' | 'cost'): number =>
    services.counts.used(
      kind === 'quota'
        ? { subject: accountId, kind, lengthMs: plan.quota.windowMs }
        : { subject: keyId, kind, lengthMs: dayMs },
    );
  stop('at once');
  // Its model is asked by then, and says nothing.
  setTimeout(() => stop('before the first token'), 50);
  let reported: unknown;
  let isWhole = false;
  let claimed: readonly number[] = [];
  try {
    await begins((batch) => {
      claimed = [used('tokens'), used('cost')];
      stop('in the answer');
      isWhole = batch.at(-1)?.type === 'usage';
      return !leaves;
    });
  } catch (error) {
    reported = error;
  }
  assert.ok(reported === undefined || reported instanceof ApiError, String(reported));
  const [receipt, ...others] = services.ended;
  assert.ok(receipt !== undefined && others.length === 0);
  const [row] = await store.repositories.listUsage({ accountId });
  assert.deepEqual(
    [row?.ending, row?.costMicrocents, row?.errorCode],
    [receipt.ending, receipt.costMicrocents, receipt.errorCode],
  );
  assert.equal(await balanceOf(store, accountId), has - receipt.costMicrocents);
  assert.deepEqual([services.limits.running, billing.openHolds, billing.heldMicrocents], [0, 0, 0n]);
  assert.equal(used('cost'), Number(receipt.costMicrocents));
  return {
    receipt,
    reported: reported?.code ?? null,
    retryAfterSeconds: reported?.retryAfterSeconds,
    isWhole,
    used,
    claimed,
  };
}

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
        assert.equal(rest.retryAfterSeconds, reason === 'drain' || reason === 'lost' ? 1 : undefined);
        assert.deepEqual([used('tokens'), used('requests')], [pays ? prompt + completion : 0, 1]);
      });
});

type Outcome = Partial<Receipt> & { readonly ending: Ending };

/** What happens, what is recorded of it, and whether the client gets a whole answer; the error it is reported is the recorded one. */
const others: readonly (readonly [string, Course, Outcome, isWhole: boolean])[] = [
  ['finished', {}, { ending: 'finished', completionTokens: 2, finish: 'stop', errorCode: null, counted: false }, true],
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
      assert.equal(prompt, completion === 0 ? 0 : promptTokens);
      assert.equal(receipt.costMicrocents, pays ? costOf(prompt, completion) : 0n);
      assert.deepEqual([used('tokens'), used('requests')], [pays ? prompt + completion : 0, 1]);
      assert.deepEqual([reported, rest.isWhole], [expected.errorCode ?? null, isWhole]);
    });
});

const pickOf = (receipt: Receipt, like: Partial<Receipt>): Partial<Receipt> =>
  Object.fromEntries(Object.keys(like).map((column) => [column, receipt[column as keyof Receipt]]));

const fails = { fault: { after_tokens: 1, type: 'error' as const } };
/** Who pays, by the key: the plan, or the credit and these budgets. How many of the plan's and of the day's requests it was. */
const payers: readonly (readonly [string, Course, Partial<Receipt>, quota: number, requests: number])[] = [
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
