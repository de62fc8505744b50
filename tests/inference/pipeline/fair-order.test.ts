import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { tiers, type Tier } from '../../../src/generation/tier.ts';
import type { Asking } from '../../../src/inference/pipeline/tier-line.ts';
import { Waiter, WaitQueue, type WaitQueueOptions } from '../../../src/inference/pipeline/wait-queue.ts';

const never = new AbortController().signal;

interface Server {
  readonly slots: number;
  running: number;
}

interface Asked extends Asking {
  /** The servers that can take it; all when left out. */
  readonly at?: readonly number[];
}

const asked = (
  account: string,
  tokens = 100,
  { tier = 'default' as Tier, key = account, at }: Partial<{ tier: Tier; key: string; at: readonly number[] }> = {},
): Asked => ({
  tier,
  account: { id: account },
  key: { id: key },
  model: {},
  promptTokensLikely: tokens,
  completionTokensMax: 0,
  ...(at === undefined ? {} : { at }),
});

/** Servers behind one queue, and what they have served. */
function play(slots: readonly number[], options: Partial<WaitQueueOptions> = {}) {
  const servers: Server[] = slots.map((count) => ({ slots: count, running: 0 }));
  const isFree = (server: Server): boolean => server.running < server.slots;
  const queue = new WaitQueue<Server>({
    lengthMax: 5_000,
    timeoutMs: 60_000,
    mayHaveChanged: () => servers.some(isFree),
    ...options,
  });
  /** In the order in which they got a slot. */
  const served: Asked[] = [];
  const refused: Asked[] = [];
  const waiting = new Set<Asked>();
  const aborts: AbortController[] = [];
  const ask = (request: Asked): void => {
    const abort = new AbortController();
    aborts.push(abort);
    const take = (): Server | undefined => {
      const server = servers.find((each, index) => isFree(each) && (request.at?.includes(index) ?? true));
      if (server === undefined) return undefined;
      server.running++;
      waiting.delete(request);
      served.push(request);
      return server;
    };
    const got = queue.acquire(take, abort.signal, request);
    if (got instanceof Waiter) {
      waiting.add(request);
      got.outcome.then(
        (outcome) => {
          if (typeof outcome !== 'string') return;
          waiting.delete(request);
          refused.push(request);
        },
        () => {},
      );
    } else if (typeof got === 'string') refused.push(request);
  };
  const free = (index: number): void => {
    const server = servers[index % servers.length]!;
    if (server.running === 0) return;
    server.running--;
    queue.offer();
  };
  return {
    queue,
    servers,
    served,
    refused,
    waiting,
    ask,
    free,
    canUse: (request: Asked): boolean =>
      servers.some((each, index) => isFree(each) && (request.at?.includes(index) ?? true)),
    /** Nobody waits out the time limit after the test. */
    end: () => aborts.forEach((abort) => abort.abort(new Error('over'))),
  };
}

const accounts = ['a', 'b', 'c', 'd'];
const tokensMax = 2_000;

const request = fc.record({
  kind: fc.constant('ask' as const),
  account: fc.constantFrom(...accounts),
  tokens: fc.integer({ min: 1, max: tokensMax }),
  tier: fc.constantFrom<Tier>('priority', 'default', 'default', 'flex'),
  at: fc.constantFrom(undefined, undefined, undefined, [0], [1]),
});
const step = fc.oneof(
  { weight: 3, arbitrary: request },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('free' as const), server: fc.nat(1) }) },
);

describe('the order of the queue', () => {
  it('never lets a request wait beside a slot that it can use, whoever waits with it', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const scene = play([1, 2]);
        for (const each of steps) {
          if (each.kind === 'free') scene.free(each.server);
          else scene.ask(asked(each.account, each.tokens, { tier: each.tier, ...(each.at && { at: each.at }) }));
          assert.ok(![...scene.waiting].some((one) => scene.canUse(one)), 'somebody waits beside a free slot');
        }
        scene.end();
      }),
      { numRuns: 200 },
    );
  });

  it('gives accounts that wait the same tokens, within the largest request', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: tokensMax }), { minLength: 20, maxLength: 60 });
    fc.assert(
      fc.property(fc.tuple(sizes, sizes, sizes), fc.array(fc.nat(2), { maxLength: 20 }), (all, keys) => {
        const scene = play([1]);
        scene.ask(asked('before', 1));
        for (const [index, requests] of all.entries())
          for (const [at, tokens] of requests.entries())
            scene.ask(asked(accounts[index]!, tokens, { key: `key_${keys[at % (keys.length || 1)] ?? 0}` }));
        const left = all.map(({ length }) => length);
        const had = [0, 0, 0];
        for (;;) {
          const before = scene.served.length;
          scene.free(0);
          const got = scene.served[before]!;
          const index = accounts.indexOf(got.account.id);
          had[index]! += got.promptTokensLikely;
          left[index]!--;
          // From here on one of them has nothing more to wait with.
          if (left.includes(0)) break;
          assert.ok(Math.max(...had) - Math.min(...had) <= tokensMax, `they have had ${had.join(', ')}`);
        }
        scene.end();
      }),
      { numRuns: 40 },
    );
  });

  it('lets nobody wait for more than a turn of each other, however many newcomers there are', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 30 }), fc.integer({ min: 1, max: tokensMax }), (newcomers, tokens) => {
        const scene = play([1]);
        scene.ask(asked('before', tokens));
        const mine = [1, 2, 3].map(() => asked('mine', tokens));
        for (const one of mine) scene.ask(one);
        // Always so many who have never been here, and one more for each that is served.
        let number = 0;
        const come = (): void => scene.ask(asked(`new_${number++}`, tokens));
        for (let at = 0; at < newcomers; at++) come();
        const gotAt: number[] = [];
        for (let grants = 0; gotAt.length < mine.length && grants < 1_000; grants++) {
          const before = scene.served.length;
          scene.free(0);
          if (scene.served[before]!.account.id === 'mine') gotAt.push(grants);
          else come();
        }
        const waits = gotAt.map((at, index) => at - (gotAt[index - 1] ?? -1));
        assert.equal(gotAt.length, mine.length, 'starved');
        assert.ok(Math.max(...waits) <= 2 * newcomers + 1, `waited for ${waits.join(', ')} of ${newcomers}`);
        scene.end();
      }),
      { numRuns: 30 },
    );
  });

  it('lets one with 1,000 requests cost 50 others a fifth of their wait at most', () => {
    const others = Array.from({ length: 50 }, (_, index) => asked(`other_${index}`));
    const waitsWith = (greedy: number): number => {
      const scene = play([4]);
      for (let at = 0; at < 4; at++) scene.ask(asked('before'));
      for (let at = 0; at < greedy; at++) scene.ask(asked('greedy'));
      for (const other of others) scene.ask(other);
      for (let at = 0; at < 1_000; at++) scene.free(0);
      const after = scene.served.slice(4);
      scene.end();
      return others.reduce((sum, other) => sum + after.indexOf(other) + 1, 0) / others.length;
    };
    const alone = waitsWith(0);
    const beside = waitsWith(1_000);
    assert.ok(beside / alone <= 1.2, `${beside} slots instead of ${alone}`);
  });

  it('counts what requests really took, and what the weight of an account gives it', () => {
    const scene = play([1], { weightOf: ({ id }) => (id === 'heavy' ? 3 : 1) });
    scene.ask(asked('before', 1));
    for (let at = 0; at < 100; at++) for (const account of ['light', 'heavy']) scene.ask(asked(account));
    for (let at = 0; at < 80; at++) scene.free(0);
    const of = (account: string, from = 0): number =>
      scene.served.slice(from).filter((each) => each.account.id === account).length;
    assert.ok(Math.abs(of('heavy') - 3 * of('light')) <= 3, `${of('heavy')} and ${of('light')}`);
    // Three answers were longer than they were expected to be, by ten requests of the same size together.
    const before = scene.served.length;
    scene.queue.ended(asked('heavy'), 3_100);
    for (let at = 0; at < 10; at++) scene.free(0);
    assert.ok(of('light', before) >= 9, `${of('light', before)} of the ten after it`);
    scene.end();
  });

  it('goes by tiers, and passes none over for ever: every fifth slot is of default, every seventeenth of flex', () => {
    const scene = play([1]);
    scene.ask(asked('before'));
    for (let at = 0; at < 400; at++) for (const tier of tiers) scene.ask(asked(`${tier}_${at % 7}`, 100, { tier }));
    for (let at = 0; at < 340; at++) scene.free(0);
    const order = scene.served.slice(1).map(({ tier }) => tier);
    assert.equal(order[0], 'priority');
    const most = (tier: Tier): number => {
      const at = order.flatMap((each, index) => (each === tier ? [index] : []));
      return Math.max(...at.map((index, which) => index - (at[which - 1] ?? -1)));
    };
    assert.ok(most('default') <= 5 && most('default') >= 4, String(most('default')));
    assert.ok(most('flex') <= 17 && most('flex') >= 16, String(most('flex')));
    const priority = order.filter((tier) => tier === 'priority').length;
    assert.ok(priority / order.length >= 0.7, `${priority} of ${order.length}`);
    assert.ok(!order.includes('batch'), 'a batch waits until nobody else does');
    scene.end();
  });

  it('makes room for who has less waiting, a tier before it, or the first of a later one, and lets one alone fill it', async () => {
    const scene = play([1], { lengthMax: 6 });
    scene.ask(asked('before'));
    for (let at = 0; at < 8; at++) scene.ask(asked('greedy', 100 + at));
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(
      scene.refused.map(({ promptTokensLikely }) => promptTokensLikely),
      [106, 107],
    );
    scene.ask(asked('other'));
    scene.ask(asked('greedy', 200, { tier: 'priority' }));
    scene.ask(asked('cheap', 300, { tier: 'flex' }));
    scene.ask(asked('cheap', 301, { tier: 'flex' }));
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(
      scene.refused.slice(2).map(({ promptTokensLikely, account }) => `${account.id} ${promptTokensLikely}`),
      ['cheap 301', 'greedy 105', 'greedy 104', 'greedy 103'],
    );
    assert.equal(scene.queue.length, 6);
    scene.end();
  });

  it('says who is in front, and how long that takes', () => {
    const scene = play([1]);
    scene.ask(asked('before'));
    for (const account of ['a', 'a', 'b', 'c']) scene.ask(asked(account));
    scene.ask(asked('a', 100, { tier: 'priority' }));
    const got = scene.queue.acquire(() => undefined, never, asked('b'));
    assert.ok(got instanceof Waiter);
    assert.deepEqual(got.ahead, { tiers: 1, own: 1, others: 3 });
    assert.equal(got.expectedMs, undefined);
    scene.end();
    got.settle('queue-timed-out');
    assert.equal(scene.queue.length, 0);
  });
});
