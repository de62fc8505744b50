/**
 * Limits in shares, several processes on one limit server (money.md, "Limits across replicas"): never more than the limit, by all
 * together, whatever is lost on the way; no refusal for longer than a second while something is free; and all of it comes back.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';

import { ApiError } from '../../../src/platform/errors.ts';
import { LimitServer } from './limit-server.ts';
import type { Claim, LimitRule, Taken } from '../../../src/billing/rate-limits/counts.ts';
import { Limits } from '../../../src/billing/rate-limits/rate-limits.ts';
import { LeasedLimits } from '../../../src/billing/rate-limits/leased-limits.ts';
import { steadyClock } from '../../../src/billing/rate-limits/steady-clock.ts';
import { Windows } from '../../../src/billing/rate-limits/windows.ts';
import { mulberry32 } from '../../support/random.ts';
import { until } from '../../support/service.ts';
import { LimitServerLeases } from './limit-server-leases.ts';
import { MemoryWindows } from './memory-windows.ts';

const begin = Date.UTC(2026, 10, 22, 9, 30);
const hourMs = 3_600_000;
const slots = (limit: number, subject = 'acct_a'): LimitRule => ({ subject, kind: 'running', lengthMs: 0, limit });
const quota = (limit: number): LimitRule => ({ subject: 'acct_a', kind: 'quota', lengthMs: hourMs, limit });
const tokens = (limit: number): LimitRule => ({ subject: 'acct_a', kind: 'tokens', lengthMs: 60_000, limit });
const one = (rule: LimitRule, amount = 1): Claim => ({ rule, amount });

/** Several processes whose clock is the machine's. */
class Cluster {
  readonly limitServer: LimitServer;
  readonly leases: readonly LimitServerLeases[];
  readonly shares: readonly LeasedLimits[];

  constructor(t: TestContext, processes: number, seed = Math.floor(Math.random() * 2 ** 31)) {
    t.diagnostic(`seed ${seed}`);
    const now = steadyClock(begin);
    this.limitServer = new LimitServer(new Windows({ store: new MemoryWindows(), now }));
    const random = mulberry32(seed);
    this.leases = Array.from(
      { length: processes },
      (_, index) => new LimitServerLeases(this.limitServer, `${index}`, random),
    );
    this.shares = this.leases.map((leases) => new LeasedLimits({ leases, now }));
    t.after(() => this.close());
  }

  async close(): Promise<void> {
    for (const shares of this.shares) await shares.close();
  }
}

/** What was taken; undefined: refused. */
async function take(shares: LeasedLimits, ...claims: readonly Claim[]): Promise<readonly Taken[] | undefined> {
  const taking = await shares.take(claims);
  return 'taken' in taking ? taking.taken : undefined;
}

/** As a client does that is refused: it comes again, and again. Milliseconds until it is let in. */
async function insist(
  shares: LeasedLimits,
  ...claims: readonly Claim[]
): Promise<{ taken: readonly Taken[]; ms: number }> {
  const begun = performance.now();
  for (;;) {
    const taken = await take(shares, ...claims);
    if (taken !== undefined) return { taken, ms: performance.now() - begun };
    assert.ok(performance.now() - begun < 30_000, 'refused for ever');
    await sleep(20);
  }
}

const end = (shares: LeasedLimits, taken: readonly Taken[], change = 0): void => {
  for (const each of taken) shares.end(each, each.rule.kind === 'running' ? 0 : change);
};

describe('a share', () => {
  test('is taken from at once; a round trip is made when it is used up, one for all that wait', async (t) => {
    const { shares, leases } = new Cluster(t, 1);
    const [process] = shares as [LeasedLimits];
    const [lease] = leases as [LimitServerLeases];
    const rule = slots(200);
    const first = process.take([one(rule)]);
    assert.ok(first instanceof Promise);
    const crowd = Array.from({ length: 99 }, () => process.take([one(rule)]));
    const taken = (await Promise.all([first, ...crowd])).flatMap((taking) => ('taken' in taking ? taking.taken : []));
    assert.equal(taken.length, 100);
    assert.ok(lease.exchanges <= 2, String(lease.exchanges));
    end(process, taken);
    const before = lease.exchanges;
    for (let times = 0; times < 1000; times++) {
      const again = process.take([one(rule)]);
      assert.ok(!(again instanceof Promise) && 'taken' in again, 'at once');
      end(process, again.taken);
    }
    assert.equal(lease.exchanges, before);
  });

  test('of a window is renewed ahead of need, at most a sixteenth of what is left', async (t) => {
    const { shares, leases, limitServer } = new Cluster(t, 1);
    const [process] = shares as [LeasedLimits];
    const rule = quota(1_000_000);
    const [lease] = leases as [LimitServerLeases];
    let waited = 0;
    for (let count = 0; count < 2_000; count++) {
      const taking = process.take([one(rule)]);
      if (taking instanceof Promise) waited++;
      assert.ok('taken' in (await taking));
      if (count % 8 !== 7) continue;
      // More is asked for in the next turn. Before it nothing is under way, and the next sixteen would use up what is there.
      await nextTurn();
      await until(() => !lease.isBusy, 60_000);
    }
    assert.equal(waited, 1, 'the first one, however slow the machine is');
    assert.ok(lease.exchanges <= 300, `${lease.exchanges} exchanges`);
    const leased = limitServer.used(rule);
    assert.ok(leased >= 2_000 && leased < 12_000, String(leased));
    await process.close();
    assert.equal(limitServer.used(rule), 2_000, 'what is not used comes back');
  });

  test('that is refused is refused from memory for a moment, and at once where nobody else has any', async (t) => {
    const { shares, leases } = new Cluster(t, 1);
    const [process] = shares as [LeasedLimits];
    const taken = await insist(process, one(quota(1)));
    assert.equal(await take(process, one(quota(1))), undefined);
    const before = leases[0]!.exchanges;
    for (let times = 0; times < 1000; times++) {
      const refused = process.take([one(quota(1))]);
      assert.ok(!(refused instanceof Promise) && 'lacking' in refused);
    }
    assert.equal(leases[0]!.exchanges, before);
    // A higher limit is another matter.
    assert.notEqual(await take(process, one(quota(2))), undefined);
    end(process, taken.taken, -1);
    assert.notEqual(await take(process, one(quota(2))), undefined);
  });

  test('that is idle in one process is had by another that needs it, within a second', async (t) => {
    const { shares } = new Cluster(t, 3);
    const [a, b, c] = shares as [LeasedLimits, LeasedLimits, LeasedLimits];
    for (const rule of [slots(10), quota(10), tokens(10)]) {
      const held = await Promise.all(Array.from({ length: 10 }, () => insist(a, one(rule))));
      for (const { taken } of held) end(a, taken, -1);
      const moved = await Promise.all([b, c].flatMap((to) => Array.from({ length: 5 }, () => insist(to, one(rule)))));
      const worst = Math.max(...moved.map(({ ms }) => ms));
      t.diagnostic(`${rule.kind}: ${worst.toFixed(0)} ms`);
      assert.ok(worst < 5_000);
    }
  });

  test('counts for nothing under a lower limit until all together are below it', async (t) => {
    const { shares, limitServer } = new Cluster(t, 2);
    const [a, b] = shares as [LeasedLimits, LeasedLimits];
    const heldByA = await Promise.all(Array.from({ length: 5 }, () => insist(a, one(slots(10)))));
    const heldByB = await Promise.all(Array.from({ length: 5 }, () => insist(b, one(slots(10)))));
    for (const process of [a, b]) assert.equal(await take(process, one(slots(4))), undefined);
    let running = 10;
    while (running > 3) {
      const [from, process] = heldByA.length > 0 ? [heldByA, a] : [heldByB, b];
      end(process, from.pop()!.taken);
      running--;
      if (running >= 4)
        for (const each of [a, b]) assert.equal(await take(each, one(slots(4))), undefined, `${running}`);
    }
    const { ms } = await insist(a, one(slots(4)));
    t.diagnostic(`${ms.toFixed(0)} ms`);
    assert.ok(limitServer.used(slots(4)) <= 4);
    for (const process of [a, b]) assert.equal(await take(process, one(slots(4))), undefined);
    // What is idle here, while others run more than the lower limit, counts for nothing either.
    const [before, after] = [slots(10, 'acct_b'), slots(4, 'acct_b')];
    const idle = await Promise.all(Array.from({ length: 5 }, () => insist(a, one(before))));
    for (let count = 0; count < 5; count++) await insist(b, one(before));
    for (const { taken } of idle) end(a, taken);
    assert.equal(await take(a, one(after)), undefined);
  });

  test('of a limit below the number of processes goes from one to the next', async (t) => {
    const { shares } = new Cluster(t, 3);
    for (const limit of [1, 2]) {
      const rule = slots(limit, `acct_${limit}`);
      let running = 0;
      let most = 0;
      const served = [0, 0, 0];
      const startedMs = performance.now();
      // Four seconds, and on a busy machine until everybody has had a turn.
      const isOver = (): boolean => {
        const elapsedMs = performance.now() - startedMs;
        return elapsedMs > 4_000 && (served.every((count) => count > 0) || elapsedMs > 40_000);
      };
      await Promise.all(
        Array.from({ length: 30 }, async (_, index) => {
          const process = shares[index % 3]!;
          while (!isOver()) {
            const taken = await take(process, one(rule));
            if (taken === undefined) {
              await sleep(30);
              continue;
            }
            most = Math.max(most, ++running);
            served[index % 3]!++;
            await sleep(20);
            running--;
            end(process, taken);
          }
        }),
      );
      t.diagnostic(`limit ${limit}: at most ${most}, served ${served.join(' ')}`);
      assert.equal(most, limit);
      assert.ok(
        served.every((count) => count > 0),
        'nobody is left out',
      );
    }
  });

  test('that is not trusted any more lets nobody in; what was lost is not used, and the process goes on', async (t) => {
    const { shares, leases, limitServer } = new Cluster(t, 2);
    const [a, b] = shares as [LeasedLimits, LeasedLimits];
    const held = await insist(a, one(slots(3)), one(quota(100)));
    leases[0]!.trustedUntilMs = -Infinity;
    leases[0]!.isCut = true;
    await assert.rejects(async () => await a.take([one(slots(3))]), /answer/);
    leases[0]!.isCut = false;
    const waiting = a.take([one(slots(3))]);
    leases[0]!.die();
    leases[0]!.trustedUntilMs = Infinity;
    assert.ok('taken' in (await waiting));
    // What was taken in the earlier life does not come back in this one.
    end(a, held.taken, -1);
    for (let count = 0; count < 2; count++) await insist(b, one(slots(3)));
    assert.equal(await take(b, one(slots(3))), undefined);
    assert.equal(limitServer.used(slots(3)), 3);
  });

  test('Limits turn silence into 500 with Retry-After, and a refusal into 429', async (t) => {
    const { shares, leases } = new Cluster(t, 1);
    const [process] = shares as [LeasedLimits];
    const limits = new Limits({ counts: process, concurrencyPerAccountMax: 1, plans: [] });
    const caller = { account: { id: 'acct_a' }, key: { id: 'key_a' } };
    const admitted = await limits.admit(caller, 'generate');
    assert.equal(limits.running, 1);
    await assert.rejects(async () => await limits.admit(caller, 'generate'), isError('concurrency_limit_exceeded', 1));
    admitted.end();
    leases[0]!.isCut = true;
    const other = { account: { id: 'acct_b' }, key: { id: 'key_b' } };
    await assert.rejects(async () => await limits.admit(other, 'generate'), isError('internal_error', 1));
    assert.equal(limits.running, 0);
  });
});

test('a burst while another process has the rest of a limit of spending passes it by one request', async (t) => {
  const { shares } = new Cluster(t, 2);
  const [here, other] = shares.map((counts) => new Limits({ counts, concurrencyPerAccountMax: 1_000, plans: [] })) as [
    Limits,
    Limits,
  ];
  const cent = 1_000_000;
  const rule = { subject: 'key_a', kind: 'cost', lengthMs: 24 * hourMs, limit: 100 * cent } as const;
  const caller = { account: { id: 'acct_a' }, key: { id: 'key_a', rates: { centsPerDay: 100 } } };
  const spending = { microcentsLikely: () => cent, turns: () => [] };
  const admit = async (limits: Limits) => await limits.admit(caller, 'generate', 1, spending);
  const spend = async (limits: Limits): Promise<void> =>
    (await admit(limits)).end({ tokens: 1, costMicrocents: BigInt(cent), isCounted: true });
  await spend(other);
  let spent = 1;
  for (; shares[0]!.used(rule) < rule.limit; spent++) await spend(here);
  const burst = await Promise.allSettled(Array.from({ length: 40 }, () => admit(here)));
  spent += burst.filter(({ status }) => status === 'fulfilled').length;
  assert.ok(spent <= 101, `${spent} requests of a cent each`);
});

test('a cost that nobody expected counts for all processes', async (t) => {
  const { shares } = new Cluster(t, 2);
  const [here, other] = shares.map((counts) => new Limits({ counts, concurrencyPerAccountMax: 1_000, plans: [] })) as [
    Limits,
    Limits,
  ];
  const cent = 1_000_000;
  const caller = { account: { id: 'acct_a' }, key: { id: 'key_a', rates: { centsPerDay: 1 } } };
  const costing = (microcents: number) => ({ microcentsLikely: () => microcents, turns: () => [] });
  const free = await here.admit(caller, 'generate', 1, costing(0));
  free.end({ tokens: 1, costMicrocents: BigInt(cent), isCounted: true });
  await assert.rejects(async () => await here.admit(caller, 'generate', 1, costing(1)), {
    code: 'rate_limit_exceeded',
  });
  await until(async () => {
    try {
      (await other.admit(caller, 'generate', 1, costing(1))).end();
      return false;
    } catch (error) {
      return error instanceof ApiError && error.code === 'rate_limit_exceeded';
    }
  });
  (await other.admit(caller, 'generate', 1, costing(0))).end();
});

const isError = (code: string, retryAfterSeconds: number) => (error: unknown) =>
  error instanceof ApiError && error.code === code && error.retryAfterSeconds === retryAfterSeconds;

test('whatever is lost on the way, and whichever process dies: never above the limit, and everything comes back', async (t) => {
  const seed = Number(globalThis.process.env['TOKENHOUSE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  const { shares, leases, limitServer } = new Cluster(t, 3, seed);
  const random = mulberry32(seed + 1);
  const below = (limit: number): number => Math.floor(random() * limit);
  const rules = [slots(6), slots(1, 'key_a'), slots(40, 'acct_b'), quota(300), tokens(5_000)];
  const used = new Map<LimitRule, number>();
  const add = (rule: LimitRule, change: number): number => {
    used.set(rule, (used.get(rule) ?? 0) + change);
    return used.get(rule)!;
  };
  /** What runs in each process. When one dies all that it runs is cut in the same moment. */
  const running = [new Map<LimitRule, number>(), new Map<LimitRule, number>(), new Map<LimitRule, number>()];
  const lives = [0, 0, 0];
  const outcomes = { taken: 0, refused: 0, silent: 0 };
  for (const lease of leases) lease.loss = 0.05;
  const deadline = performance.now() + 8_000;
  const client = async (index: number): Promise<void> => {
    const process = shares[index]!;
    while (performance.now() < deadline) {
      const chosen = rules.filter(() => below(2) === 0);
      const claims = chosen.map((rule) => one(rule, rule.kind === 'tokens' ? 1 + below(60) : 1));
      const taking = await Promise.resolve(process.take(claims)).catch(() => undefined);
      if (taking === undefined || 'lacking' in taking) {
        outcomes[taking === undefined ? 'silent' : 'refused']++;
        await sleep(1 + below(20));
        continue;
      }
      outcomes.taken++;
      const epoch = lives[index]!;
      for (const { rule, amount } of claims) {
        if (rule.kind === 'running') running[index]!.set(rule, (running[index]!.get(rule) ?? 0) + 1);
        else add(rule, amount);
        const now =
          rule.kind === 'running' ? running.reduce((sum, each) => sum + (each.get(rule) ?? 0), 0) : used.get(rule)!;
        // Tokens may be more than they were estimated.
        if (rule.kind !== 'tokens') assert.ok(now <= rule.limit, `${rule.subject} ${rule.kind}: ${now}`);
      }
      await sleep(below(15));
      for (const taken of taking.taken) {
        const { rule, amount } = taken;
        if (rule.kind === 'running') {
          if (epoch === lives[index]) running[index]!.set(rule, running[index]!.get(rule)! - 1);
          process.end(taken, 0);
          continue;
        }
        const change = rule.kind === 'tokens' ? below(2 * amount) - amount : below(4) === 0 ? -1 : 0;
        if (change > 0 || epoch === lives[index]) add(rule, change);
        process.end(taken, change);
      }
    }
  };
  const killing = (async () => {
    for (let times = 0; times < 3; times++) {
      await sleep(2_000);
      const index = below(3);
      lives[index]!++;
      running[index]!.clear();
      leases[index]!.die();
    }
  })();
  await Promise.all([...Array.from({ length: 30 }, (_, index) => client(index % 3)), killing]);
  t.diagnostic(`${outcomes.taken} taken, ${outcomes.refused} refused, ${outcomes.silent} without an answer`);
  assert.ok(outcomes.taken > 300 && outcomes.refused > 50);
  for (const lease of leases) lease.loss = 0;
  for (const process of shares) await process.close();
  for (const rule of rules) {
    if (rule.kind === 'running') assert.equal(limitServer.used(rule), 0, rule.subject);
    else assert.ok(limitServer.used(rule) >= (used.get(rule) ?? 0), rule.kind);
  }
});

test('S5: processes whose clocks differ count in the same windows, and pass none of them', async (t) => {
  const limitServerClock = steadyClock(begin);
  const limitServer = new LimitServer(new Windows({ store: new MemoryWindows(), now: limitServerClock }));
  const random = mulberry32(1);
  const lengthMs = 1_000;
  const rule: LimitRule = { subject: 'acct_a', kind: 'requests', lengthMs, limit: 20 };
  const processes = [-150, 0, 150].map((aheadMs, index) => {
    const leases = new LimitServerLeases(limitServer, String(index), random);
    return new LeasedLimits({ leases, now: steadyClock(begin + aheadMs) });
  });
  t.after(() => Promise.all(processes.map((each) => each.close())));
  const letIn = new Map<number, number>();
  const deadline = performance.now() + 5_000;
  await Promise.all(
    processes.flatMap((process) =>
      Array.from({ length: 4 }, async () => {
        while (performance.now() < deadline) {
          const taken = await take(process, one(rule));
          if (taken !== undefined) {
            const at = taken[0]!.startsAt;
            letIn.set(at, (letIn.get(at) ?? 0) + 1);
            assert.ok(letIn.get(at)! <= 20, String(letIn.get(at)));
          }
          await sleep(5);
        }
      }),
    ),
  );
  t.diagnostic([...letIn.values()].join(' '));
  const full = [...letIn.values()].slice(1, -1);
  assert.ok(full.length >= 2 && full.filter((count) => count === 20).length >= full.length / 2, full.join(' '));
});
