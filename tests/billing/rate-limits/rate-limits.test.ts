/** Limits on accounts and keys (specification §7.5 and part 8; money.md, "Plans" and "Limits across replicas"). */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { WholeLimits } from '../../../src/billing/rate-limits/whole-limits.ts';
import { Limits } from '../../../src/billing/rate-limits/rate-limits.ts';
import type { Admitted, LimitedCaller, LimitedWork, Plan } from '../../../src/billing/rate-limits/rate-limits.ts';
import type { ScopedRates } from '../../../src/billing/rate-limits/rates.ts';
import { steadyClock } from '../../../src/billing/rate-limits/steady-clock.ts';
import { Windows } from '../../../src/billing/rate-limits/windows.ts';
import { MemoryWindows } from './memory-windows.ts';

const hourMs = 3_600_000;
/** A hundred tokens cost a cent. */
const microcentsPerToken = 10_000;
const begin = Date.UTC(2026, 10, 22, 9, 30);

/** Limits under a clock that the test moves. */
class TestLimits {
  ms = 0;
  /** What somebody has set the time of day ahead. */
  aheadMs = 0;
  readonly store: MemoryWindows;
  readonly windows: Windows;
  readonly limits: Limits;

  constructor(plans: readonly Plan[], concurrencyPerAccountMax = 64, store = new MemoryWindows(), at = begin) {
    this.store = store;
    this.windows = new Windows({ store, now: steadyClock(at, () => this.ms) });
    this.limits = new Limits({
      counts: new WholeLimits(this.windows),
      concurrencyPerAccountMax,
      plans,
      wall: () => at + this.ms + this.aheadMs,
    });
  }

  /** At once: where one process has every limit whole, nobody is asked. */
  admit(who: LimitedCaller, work: LimitedWork, tokens = 0): Admitted {
    const admitted = this.limits.admit(who, work, tokens, {
      microcentsLikely: () => tokens * microcentsPerToken,
      turns: () => [],
    });
    if (admitted instanceof Promise) assert.fail('it was not decided at once');
    return admitted;
  }

  refusal(who: LimitedCaller, tokens = 0): ApiError {
    try {
      this.admit(who, 'generate', tokens);
    } catch (error) {
      if (error instanceof ApiError) return error;
      throw error;
    }
    return assert.fail('it was let in');
  }

  /** Lets in as many as it can, at most a thousand. */
  fill(who: LimitedCaller, tokens = 0): Admitted[] {
    const admitted: Admitted[] = [];
    try {
      while (admitted.length < 1000) admitted.push(this.admit(who, 'generate', tokens));
    } catch (error) {
      assert.ok(error instanceof ApiError, String(error));
    }
    return admitted;
  }
}

const caller = (plan?: string, rates?: ScopedRates, key = 'key_a', account = 'acct_a'): LimitedCaller => ({
  account: { id: account, plan },
  key: { id: key, rates, isPlanKey: plan !== undefined },
});
const counted = (tokens = 0) => ({
  tokens,
  costMicrocents: BigInt(tokens * microcentsPerToken),
  isCounted: true,
});

/** Code, plan, key, and what the refusal says. */
const rows: readonly {
  readonly name: string;
  readonly plan?: Omit<Plan, 'name'>;
  readonly rates?: ScopedRates;
  /** Of the account. */
  readonly own?: ScopedRates;
  /** Every request asks for model `M`. */
  readonly tokens?: number;
  readonly letsIn: number;
  readonly code: string;
  readonly limit: number;
  readonly message: RegExp;
  /** `limit_of`, `limit_model`, `limit_unit`, `limit_window_seconds`. */
  readonly extra?: readonly unknown[];
}[] = [
  {
    name: 'running requests of an account, by the configuration',
    letsIn: 3,
    code: 'concurrency_limit_exceeded',
    limit: 3,
    message: /^The account has 3 running requests/,
  },
  {
    name: 'running requests of an account, by its plan',
    plan: { concurrencyMax: 5 },
    letsIn: 5,
    code: 'concurrency_limit_exceeded',
    limit: 5,
    message: /^The account has 5 running requests/,
  },
  {
    name: 'running requests of a key',
    rates: { concurrencyMax: 2 },
    letsIn: 2,
    code: 'concurrency_limit_exceeded',
    limit: 2,
    message: /^This key has 2 running requests/,
  },
  {
    name: 'requests that a plan includes',
    plan: { quota: { requests: 2, windowMs: hourMs } },
    letsIn: 2,
    code: 'request_quota_exceeded',
    limit: 2,
    message: /used all 2 requests/,
  },
  {
    name: 'requests in a minute, of an account',
    plan: { requestsPerMinute: 2 },
    letsIn: 2,
    code: 'rate_limit_exceeded',
    limit: 2,
    message: /^The account may send 2 requests a minute/,
  },
  {
    name: 'requests in a minute, of a key',
    rates: { requestsPerMinute: 1 },
    letsIn: 1,
    code: 'rate_limit_exceeded',
    limit: 1,
    message: /^This key may send 1 requests a minute/,
  },
  {
    name: 'tokens in a minute, of an account',
    plan: { tokensPerMinute: 1000 },
    tokens: 400,
    letsIn: 2,
    code: 'rate_limit_exceeded',
    limit: 1000,
    message: /^The account may use 1000 tokens a minute/,
  },
  {
    name: 'tokens in a minute, of a key; what is larger than the limit has a minute for itself',
    rates: { tokensPerMinute: 300 },
    tokens: 400,
    letsIn: 1,
    code: 'rate_limit_exceeded',
    limit: 300,
    message: /^This key may use 300 tokens a minute/,
  },
  {
    name: 'requests in a day, of a key',
    rates: { requestsPerDay: 2 },
    letsIn: 2,
    code: 'rate_limit_exceeded',
    limit: 2,
    message: /^This key may send 2 requests a day/,
    extra: ['key', undefined, 'requests', 86_400],
  },
  {
    name: 'of an account, which goes before that of its plan',
    plan: { requestsPerMinute: 1, tokensPerMinute: 900 },
    own: { requestsPerMinute: 2 },
    tokens: 300,
    letsIn: 2,
    code: 'rate_limit_exceeded',
    limit: 2,
    message: /^The account may send 2 requests a minute/,
    extra: ['account', undefined, 'requests', 60],
  },
  {
    name: 'of one model, of a key',
    rates: { requestsPerMinute: 3, byModel: new Map([['m', { requestsPerMinute: 2 }]]) },
    letsIn: 2,
    code: 'rate_limit_exceeded',
    limit: 2,
    message: /^This key may send 2 requests to the model 'M' a minute/,
    extra: ['key', 'M', 'requests', 60],
  },
  {
    name: 'of another model: it limits nothing',
    rates: { requestsPerMinute: 3, byModel: new Map([['n', { requestsPerMinute: 1 }]]) },
    letsIn: 3,
    code: 'rate_limit_exceeded',
    limit: 3,
    message: /^This key may send 3 requests a minute/,
  },
  {
    name: 'of one model, of an account: the least of all that apply',
    rates: { byModel: new Map([['m', { tokensPerDay: 900 }]]) },
    own: { byModel: new Map([['m', { tokensPerDay: 500 }]]) },
    tokens: 200,
    letsIn: 2,
    code: 'rate_limit_exceeded',
    limit: 500,
    message: /^The account may use 500 tokens on the model 'M' a day/,
    extra: ['account', 'M', 'tokens', 86_400],
  },
  {
    name: 'spending in five minutes; the last request takes what is left',
    rates: { centsPerFiveMinutes: 5 },
    tokens: 200,
    letsIn: 3,
    code: 'rate_limit_exceeded',
    limit: 5,
    message:
      /^This key may spend \$0.05 in five minutes. It can go on in \d+ s. If that is a surprise, look whether the program repeats itself.$/,
    extra: ['key', undefined, 'cents', 300],
  },
  {
    name: 'spending in a day, on one model',
    own: { byModel: new Map([['m', { centsPerDay: 3 }]]) },
    tokens: 200,
    letsIn: 2,
    code: 'rate_limit_exceeded',
    limit: 3,
    message: /^The account may spend \$0.03 on the model 'M' a day/,
    extra: ['account', 'M', 'cents', 86_400],
  },
];

describe('§7.5 a refusal names its limit, and says when to come back', () => {
  for (const { name, plan, rates, own, tokens = 0, letsIn, code, limit, message, extra } of rows) {
    test(name, () => {
      const testLimits = new TestLimits(plan === undefined ? [] : [{ name: 'p', ...plan }], 3);
      const { account, key } = caller(plan === undefined ? undefined : 'p', rates);
      const who = { account: { ...account, limits: own }, key, model: { id: 'M' } };
      assert.equal(testLimits.fill(who, tokens).length, letsIn);
      const refusal = testLimits.refusal(who, tokens);
      assert.deepEqual([refusal.code, refusal.status], [code, 429]);
      assert.match(refusal.message, message);
      assert.deepEqual(refusal.headers, {
        'ratelimit-limit': String(limit),
        'ratelimit-remaining': '0',
        'ratelimit-reset': String(refusal.retryAfterSeconds),
      });
      if (code === 'concurrency_limit_exceeded') assert.equal(refusal.retryAfterSeconds, 1);
      const { limit_of: of, limit_model: model, limit_unit: unit, limit_window_seconds: seconds } = refusal.extra;
      if (extra !== undefined) assert.deepEqual([of, model, unit, seconds], extra);
    });
  }
});

test('§7.5 request_quota_exceeded has request_limit, window_end and plan_tier', () => {
  const testLimits = new TestLimits([{ name: 'standard', quota: { requests: 1, windowMs: 24 * hourMs } }]);
  testLimits.fill(caller('standard'));
  const { extra, retryAfterSeconds = 0 } = testLimits.refusal(caller('standard'));
  assert.deepEqual(Object.keys(extra), ['request_limit', 'window_end', 'plan_tier']);
  assert.deepEqual([extra['request_limit'], extra['plan_tier']], [1, 'standard']);
  assert.match(String(extra['window_end']), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  const restMs = Date.parse(String(extra['window_end'])) - begin;
  assert.equal(Math.ceil(restMs / 1000), retryAfterSeconds);
  assert.ok(restMs > 0 && restMs <= 24 * hourMs);
});

test('a line of a batch that came to nothing, which the service tries again, is no request of its minute', () => {
  const testLimits = new TestLimits([]);
  const who = caller(undefined, { requestsPerMinute: 2 });
  for (let tries = 0; tries < 10; tries++) testLimits.admit(who, 'line').end();
  testLimits.admit(who, 'line').end(counted());
  testLimits.admit(who, 'generate').end();
  assert.equal(testLimits.refusal(who).code, 'rate_limit_exceeded');
});

test('money.md, "Plans": only plan keys count against the quota, and it is given back when it was our fault', () => {
  const testLimits = new TestLimits([{ name: 'p', quota: { requests: 2, windowMs: hourMs } }]);
  const serverless = { ...caller('p'), key: { id: 'key_s' } };
  assert.equal(testLimits.fill(serverless).length, 64);
  const two = new TestLimits([{ name: 'p', quota: { requests: 2, windowMs: hourMs } }]);
  const [first, second] = two.fill(caller('p'));
  first?.end({ tokens: 0, isCounted: false });
  second?.end(counted());
  const third = two.admit(caller('p'), 'generate');
  assert.throws(() => third.end() ?? third.end(), /once/);
  // The third came to nothing as well.
  assert.equal(two.fill(caller('p')).length, 1);
});

test('tokens are counted by estimate, and by what was used in the end', () => {
  const testLimits = new TestLimits([{ name: 'p', tokensPerMinute: 1000 }]);
  const one = testLimits.admit(caller('p'), 'generate', 900);
  assert.equal(testLimits.refusal(caller('p'), 200).code, 'rate_limit_exceeded');
  one.end(counted(100));
  const two = testLimits.admit(caller('p'), 'generate', 900);
  two.end(counted(5000));
  const { retryAfterSeconds = 0 } = testLimits.refusal(caller('p'), 1);
  testLimits.ms += retryAfterSeconds * 1000;
  // Began in one window and ended in a later one: what goes beyond the estimate counts where it was used.
  const long = testLimits.admit(caller('p'), 'generate', 100);
  testLimits.ms += 60_000;
  long.end(counted(700));
  assert.equal(testLimits.admit(caller('p'), 'generate', 300).headers()['ratelimit-remaining'], '100');
});

test('tokens that show only when the prompt has been read are claimed then, and accounted for once', () => {
  const testLimits = new TestLimits([{ name: 'p', tokensPerMinute: 1000 }]);
  const remaining = (admitted: Admitted): number => Number(admitted.headers()['ratelimit-remaining']);
  const one = testLimits.admit(caller('p'), 'generate', 100);
  void one.raise(400);
  void one.raise(50);
  assert.equal(remaining(one), 600);
  const two = testLimits.admit(caller('p'), 'generate', 500);
  assert.throws(() => two.raise(700), { code: 'rate_limit_exceeded' });
  assert.equal(remaining(two), 100, 'what was refused took nothing');
  two.end();
  one.end(counted(300));
  const three = testLimits.admit(caller('p'), 'generate', 1);
  assert.equal(remaining(three), 699);
  // Longer than the limit: it gets what a window has, if that is free.
  assert.throws(() => three.raise(5000), { code: 'rate_limit_exceeded' });
  three.end();
  testLimits.ms += 60_000;
  const alone = testLimits.admit(caller('p'), 'generate', 1);
  void alone.raise(5000);
  assert.equal(remaining(alone), 0);
  alone.end();
  assert.equal(remaining(testLimits.admit(caller('p'), 'generate', 1)), 999);
});

test('an account can have a limit of its own, and a changed plan or configuration holds from the next request on', () => {
  const testLimits = new TestLimits([{ name: 'p', concurrencyMax: 3 }], 2);
  const own = { account: { id: 'acct_o', plan: 'p', limits: { concurrencyMax: 4 } }, key: { id: 'key_o' } };
  assert.equal(testLimits.fill(own).length, 4);
  assert.equal(testLimits.fill(caller('p')).length, 3);
  testLimits.limits.plans = [{ name: 'p', concurrencyMax: 5 }];
  assert.equal(testLimits.fill(caller('p')).length, 2);
  // A plan that the configuration has no longer limits nothing of its own.
  testLimits.limits.plans = [];
  assert.equal(testLimits.fill({ ...caller('p', undefined, 'key_b', 'acct_b') }).length, 2);
});

test('a plan key needs a plan', () => {
  const { limits } = new TestLimits([{ name: 'p' }]);
  assert.equal(limits.coveringPlan(caller('p')), 'p');
  assert.equal(limits.coveringPlan({ account: { id: 'a', plan: 'p' }, key: { id: 'k' } }), undefined);
  for (const plan of [undefined, 'gone'])
    assert.throws(
      () => limits.coveringPlan({ account: { id: 'a', plan }, key: { id: 'k', isPlanKey: true } }),
      (error: unknown) => error instanceof ApiError && error.code === 'http_403',
    );
});

test('a generation that seems to use nothing is counted by what it used', () => {
  const testLimits = new TestLimits([{ name: 'p', tokensPerMinute: 1000 }]);
  testLimits.admit(caller('p'), 'generate', 0).end(counted(1000));
  assert.equal(testLimits.refusal(caller('p'), 0).code, 'rate_limit_exceeded');
});

test('the last microcent of a limit of spending lets one more in, and nothing left none but what costs nothing', () => {
  const testLimits = new TestLimits([]);
  const who = caller(undefined, { centsPerDay: 1 });
  testLimits.admit(who, 'generate', 10).end({ tokens: 10, costMicrocents: 999_999n, isCounted: true });
  const last = testLimits.admit(who, 'generate', 300);
  assert.equal(testLimits.refusal(who, 1).code, 'rate_limit_exceeded');
  testLimits.admit(who, 'generate', 0).end(counted());
  assert.equal(last.headers()['ratelimit-limit'], undefined, 'money is no header');
  // What was taken is given back, whole.
  last.end({ tokens: 0, isCounted: false });
  testLimits.admit(who, 'generate', 300).end({ tokens: 0, costMicrocents: 1n, isCounted: true });
  assert.equal(testLimits.refusal(who, 1).code, 'rate_limit_exceeded');
});

test('a cost that nobody expected counts: of a free model that another one serves, for a price', () => {
  const testLimits = new TestLimits([]);
  const who = caller(undefined, { centsPerDay: 1 });
  const free = testLimits.admit(who, 'generate', 0);
  free.end({ tokens: 10, costMicrocents: 1_000_000n, isCounted: true });
  assert.equal(testLimits.refusal(who, 1).code, 'rate_limit_exceeded');
  testLimits.admit(who, 'generate', 0).end({ tokens: 10, costMicrocents: 0n, isCounted: true });
});

test('what is over a limit stops what would use more of it, and neither what costs nothing nor what counts as a request alone', () => {
  const testLimits = new TestLimits([{ name: 'p', tokensPerMinute: 100 }]);
  const who = caller('p', { centsPerDay: 1 });
  testLimits.admit(who, 'generate', 1).end(counted(500));
  assert.throws(() => testLimits.admit(who, 'generate', 1), { code: 'rate_limit_exceeded' });
  testLimits.admit(who, 'count').end();
  testLimits.admit(who, 'file').end();
  testLimits.admit(caller(undefined, who.key.rates), 'generate', 0).end();
});

test('a refusal says whole seconds, at least one', () => {
  const testLimits = new TestLimits([]);
  const who = caller(undefined, { requestsPerMinute: 1 });
  const rule = { subject: 'key_a', kind: 'requests', lengthMs: 60_000, limit: 1 } as const;
  testLimits.fill(who);
  const restMs = testLimits.windows.restMs(rule);
  for (const [leftMs, seconds] of [
    [1_001, 2],
    [1_000, 1],
    [1, 1],
  ] as const) {
    testLimits.ms = restMs - leftMs;
    assert.equal(testLimits.refusal(who).retryAfterSeconds, seconds);
  }
});

test('files take a place, counting does not, and both are requests; neither is one that a plan includes', () => {
  const plan = { name: 'p', quota: { requests: 1, windowMs: hourMs }, requestsPerMinute: 3, tokensPerMinute: 1 };
  const testLimits = new TestLimits([{ ...plan, concurrencyMax: 1 }]);
  testLimits.admit(caller('p'), 'count');
  testLimits.admit(caller('p'), 'file');
  assert.throws(() => testLimits.admit(caller('p'), 'file'), /running/);
  assert.equal(testLimits.limits.running, 1);
  testLimits.admit(caller('p'), 'count');
  assert.throws(() => testLimits.admit(caller('p'), 'count'), /a minute/);
});

test('§7.5 headers of an answer: the limit of which the smallest share is left; none without limits', () => {
  const testLimits = new TestLimits([
    { name: 'p', quota: { requests: 100, windowMs: 30 * 24 * hourMs }, requestsPerMinute: 4, tokensPerMinute: 10_000 },
  ]);
  assert.deepEqual(testLimits.admit(caller(), 'generate', 10).headers(), {});
  const one = testLimits.admit(caller('p'), 'generate', 5000);
  const headers = one.headers();
  assert.deepEqual([headers['ratelimit-limit'], headers['ratelimit-remaining']], ['10000', '5000']);
  one.end(counted(10));
  const after = one.headers();
  assert.deepEqual([after['ratelimit-limit'], after['ratelimit-remaining']], ['4', '3']);
  testLimits.ms += Number(after['ratelimit-reset']) * 1000;
  assert.notEqual(one.headers()['ratelimit-limit'], '4');
});

const plan: fc.Arbitrary<Plan> = fc.record(
  {
    name: fc.constant('p'),
    quota: fc.option(
      fc.record({ requests: fc.integer({ min: 1, max: 20 }), windowMs: fc.constantFrom(10_000, hourMs, 24 * hourMs) }),
      { nil: undefined },
    ),
    requestsPerMinute: fc.option(fc.integer({ min: 1, max: 20 }), { nil: undefined }),
    tokensPerMinute: fc.option(fc.integer({ min: 1, max: 5000 }), { nil: undefined }),
    concurrencyMax: fc.option(fc.integer({ min: 1, max: 8 }), { nil: undefined }),
  },
  { requiredKeys: ['name'] },
);
const rates: fc.Arbitrary<ScopedRates> = fc.record({
  concurrencyMax: fc.option(fc.integer({ min: 1, max: 8 }), { nil: undefined }),
  requestsPerMinute: fc.option(fc.integer({ min: 1, max: 20 }), { nil: undefined }),
  tokensPerMinute: fc.option(fc.integer({ min: 1, max: 5000 }), { nil: undefined }),
  requestsPerDay: fc.option(fc.integer({ min: 1, max: 20 }), { nil: undefined }),
  centsPerFiveMinutes: fc.option(fc.integer({ min: 1, max: 50 }), { nil: undefined }),
  byModel: fc.option(
    fc.record({ tokensPerDay: fc.integer({ min: 1, max: 9000 }) }).map((of) => new Map([['m', of]])),
    { nil: undefined },
  ),
});

type Step =
  | { readonly does: 'ask'; readonly key: number; readonly tokens: number }
  | { readonly does: 'end'; readonly which: number; readonly tokens: number; readonly isCounted: boolean }
  | { readonly does: 'wait'; readonly ms: number }
  | { readonly does: 'jump'; readonly hours: number };
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ does: fc.constant('ask' as const), key: fc.nat(1), tokens: fc.nat(3000) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      does: fc.constant('end' as const),
      which: fc.nat(),
      tokens: fc.nat(4000),
      isCounted: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ does: fc.constant('wait' as const), ms: fc.nat(90_000) }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant('jump' as const), hours: fc.constantFrom(1, -1, 9600) }) },
);

interface Played {
  readonly code: string;
  readonly retryAfterSeconds: number | undefined;
}

/** Asks, ends and waits; after each refusal looks whether it said the truth, on limits that have lived through the same. */
function play(terms: Plan, of: readonly ScopedRates[], steps: readonly Step[], jumps: boolean): Played[] {
  const played: Played[] = [];
  const live = (until: number): { testLimits: TestLimits; running: Admitted[]; refused: ApiError | undefined } => {
    const testLimits = new TestLimits([terms], 4);
    const running: Admitted[] = [];
    let refused: ApiError | undefined;
    for (const one of steps.slice(0, until)) {
      refused = undefined;
      switch (one.does) {
        case 'wait':
          testLimits.ms += one.ms;
          break;
        case 'jump':
          if (jumps) testLimits.aheadMs += one.hours * hourMs;
          break;
        case 'end':
          if (running.length > 0) running.splice(one.which % running.length, 1)[0]!.end(counted(one.tokens));
          break;
        case 'ask':
          try {
            running.push(testLimits.admit(callerOf(one.key), 'generate', one.tokens));
          } catch (error) {
            assert.ok(error instanceof ApiError, String(error));
            refused = error;
          }
      }
    }
    return { testLimits, running, refused };
  };
  const callerOf = (key: number) => ({ ...caller('p', of[key], `key_${key}`), model: { id: 'm' } });
  for (const [index, one] of steps.entries()) {
    if (one.does !== 'ask') continue;
    const { testLimits, running, refused } = live(index + 1);
    if (refused === undefined) continue;
    const { code, retryAfterSeconds, headers, extra } = refused;
    played.push({ code, retryAfterSeconds });
    assert.equal(headers['ratelimit-reset'], String(retryAfterSeconds));
    if (code === 'request_quota_exceeded') {
      const restMs = Date.parse(String(extra['window_end'])) - (begin + testLimits.ms + testLimits.aheadMs);
      assert.equal(Math.ceil(restMs / 1000), retryAfterSeconds);
    }
    // Refusing counts nothing: asked at once again, it says the same.
    assert.equal(testLimits.refusal(callerOf(one.key), one.tokens).code, code);
    if (code === 'concurrency_limit_exceeded') {
      // Nobody knows when a request ends; as soon as they have, and the second is over, there is room.
      testLimits.ms += 1000;
      for (const each of running.splice(0)) each.end(counted(0));
    } else {
      const seconds = retryAfterSeconds ?? 0;
      testLimits.ms += seconds * 1000 - 1001;
      if (seconds > 1)
        assert.equal(testLimits.refusal(callerOf(one.key), one.tokens).status, 429, 'it could have come sooner');
      testLimits.ms += 1001;
      for (const each of running.splice(0)) each.end(counted(0));
    }
    testLimits.admit(callerOf(one.key), 'generate', one.tokens).end();
  }
  return played;
}

test('§7.5 Retry-After is true: that many seconds later the request is let in, and not a second earlier', () => {
  fc.assert(
    fc.property(plan, fc.tuple(rates, rates), fc.array(step, { maxLength: 40 }), (terms, of, steps) => {
      play(terms, of, steps, false);
    }),
    { numRuns: 300 },
  );
});

test('reliability S5: a clock that jumps an hour, back or by 400 days changes nothing', () => {
  fc.assert(
    fc.property(plan, fc.tuple(rates, rates), fc.array(step, { maxLength: 40 }), (terms, of, steps) => {
      assert.deepEqual(play(terms, of, steps, true), play(terms, of, steps, false));
    }),
    { numRuns: 100 },
  );
});

test('a limit of spending is passed by the last request of a loop alone, and of several by what each costs beyond its estimate', () => {
  const request = fc.record({ likely: fc.integer({ min: 1, max: 900 }), costs: fc.nat(2000), isBeside: fc.boolean() });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 40 }), fc.array(request, { maxLength: 60 }), (cents, requests) => {
      const testLimits = new TestLimits([], 1000);
      const who = caller(undefined, { centsPerFiveMinutes: cents });
      let [spent, beyond, last] = [0, 0, 0];
      let beside: { readonly admitted: Admitted; readonly costs: number } | undefined;
      const end = (one: typeof beside): void => {
        one?.admitted.end(counted(one.costs));
        spent += one?.costs ?? 0;
      };
      for (const { likely, costs, isBeside } of requests) {
        let admitted: Admitted;
        try {
          admitted = testLimits.admit(who, 'generate', likely);
        } catch {
          // Only a limit that is used up refuses: by what was spent, or with what runs.
          assert.ok(spent + (beside === undefined ? 0 : Infinity) >= cents * 100);
          continue;
        }
        beyond += Math.max(0, costs - likely);
        last = Math.max(last, likely);
        if (isBeside && beside === undefined) beside = { admitted, costs };
        else end({ admitted, costs });
      }
      end(beside);
      assert.ok(spent <= cents * 100 + beyond + last, `${spent} of ${cents * 100}`);
    }),
    { numRuns: 300 },
  );
});

test('no window is ever passed, whatever comes and goes; what is given back can be used again', () => {
  const step = fc.record({ waitMs: fc.nat(4000), isCounted: fc.boolean(), ends: fc.boolean() });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 6 }), fc.array(step, { maxLength: 200 }), (requests, steps) => {
      const windowMs = 10_000;
      const testLimits = new TestLimits([{ name: 'p', quota: { requests, windowMs }, concurrencyMax: 1000 }]);
      const rule = { subject: 'acct_a', kind: 'quota', lengthMs: windowMs, limit: requests } as const;
      const letIn = new Map<number, number>();
      const running: { readonly at: number; readonly admitted: Admitted }[] = [];
      for (const { waitMs, isCounted, ends } of steps) {
        testLimits.ms += waitMs;
        const at = testLimits.windows.startOf(rule);
        const before = letIn.get(at) ?? 0;
        if (ends && running.length > 0) {
          const { at: then, admitted } = running.shift()!;
          admitted.end({ tokens: 0, isCounted });
          if (!isCounted && then === at) letIn.set(at, before - 1);
        } else if (before < requests) {
          running.push({ at, admitted: testLimits.admit(caller('p'), 'generate') });
          letIn.set(at, before + 1);
        } else {
          assert.equal(testLimits.refusal(caller('p')).code, 'request_quota_exceeded');
        }
        assert.equal(testLimits.windows.used(rule), letIn.get(at) ?? 0);
      }
    }),
  );
});

describe('counts outlive the process', () => {
  const terms = { name: 'p', quota: { requests: 5, windowMs: 24 * hourMs } };
  const rule = { subject: 'acct_a', kind: 'quota', lengthMs: 24 * hourMs, limit: 5 } as const;

  test('what was counted is counted after a restart, until its window is over', async () => {
    const first = new TestLimits([terms]);
    for (let i = 0; i < 3; i++) first.admit(caller('p'), 'generate').end(counted());
    await first.windows.write();
    const second = new TestLimits([terms], 64, first.store, begin + 60_000);
    await second.windows.load();
    assert.equal(second.fill(caller('p')).length, first.windows.restMs(rule) > 60_000 ? 2 : 5);
    await second.windows.write();
    const later = new TestLimits([terms], 64, first.store, begin + 24 * hourMs);
    await later.windows.load();
    assert.equal(later.fill(caller('p')).length, 5);
  });
});
