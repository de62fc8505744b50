/**
 * Limits that are exact across replicas, on the whole program (money.md, "Limits across replicas"; specification §7.5 and part
 * 8): three replicas on one database, in front of an upstream that counts what it is asked at the same time.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Operation } from '../../../src/accounts/operations.ts';
import { TestService, until } from '../../support/service.ts';
import { Upstream } from '../../support/upstream.ts';
import { report } from '../../support/workers.ts';
import { PostgresServer } from './server.ts';

/** Ten times and more what the service promises. */
const longMs = 60_000;

/** Answers after a while, and counts who is being answered, by the user that the request names. */
class Counting {
  readonly upstream: Upstream;
  answerMs = 100;
  readonly now = new Map<string, number>();
  readonly most = new Map<string, number>();
  readonly served = new Map<string, number>();

  private constructor(upstream: Upstream) {
    this.upstream = upstream;
  }

  static async start(): Promise<Counting> {
    const counting: Counting = new Counting(
      await Upstream.start(async (exchange) => {
        if (exchange.path === '/tokenize') return exchange.json(200, { count: 10, max_model_len: 8_192, tokens: [] });
        if (exchange.method !== 'POST') return exchange.json(200, {});
        const [, name = ''] = /"content":"([a-z0-9-]+)"/.exec(exchange.body) ?? [];
        const running = (counting.now.get(name) ?? 0) + 1;
        counting.now.set(name, running);
        counting.most.set(name, Math.max(counting.most.get(name) ?? 0, running));
        let isOpen = true;
        const close = (): void => {
          if (isOpen) counting.now.set(name, counting.now.get(name)! - 1);
          isOpen = false;
        };
        void exchange.closed.then(close);
        await sleep(counting.answerMs, undefined, { ref: false }); // its client may be gone long before
        if (!isOpen) return;
        close();
        counting.served.set(name, (counting.served.get(name) ?? 0) + 1);
        exchange.json(200, {
          id: 'chatcmpl-1',
          object: 'chat.completion',
          created: 1,
          model: 'm',
          choices: [{ index: 0, message: { role: 'assistant', content: 'yes' }, finish_reason: 'stop' }],
          usage: { prompt_tokens: 10, completion_tokens: 1 },
        });
      }),
    );
    return counting;
  }
}

let server: PostgresServer;
let url = '';
let counting: Counting;
let replicas: readonly [TestService, TestService, TestService];

const opened: (() => unknown)[] = [];
before(async () => {
  server = await PostgresServer.start();
  opened.push(() => server.dispose());
  url = await server.databaseWithTables();
  counting = await Counting.start();
  opened.push(() => counting.upstream.close());
  const [first, ...others] = [newReplica(), newReplica(), newReplica()] as const;
  for (const service of [first, ...others]) opened.push(() => service.dispose());
  await first.start();
  for (const other of others) Object.assign(other, { key: first.key, accountId: first.accountId });
  replicas = [first, ...others];
  await Promise.all(others.map((other) => other.start()));
});
after(async () => {
  for (const close of opened.toReversed()) await close();
});

/** Not started. */
function newReplica(): TestService {
  return new TestService({
    config: `storage: env:TEST_DATABASE
plans:
  - { name: hundred, included_requests: 100, window_hours: 8784 }
  - { name: thirty, included_requests: 30, window_hours: 8784 }
models:
  - id: demo
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, url: "${counting.upstream.url}", max_concurrency: 1000 } ]`,
    environment: { TEST_DATABASE: url, TOKENHOUSE_SECRET: 'a secret of thirty-two characters' },
    firstCreditCents: '50000',
  });
}

interface Customer {
  /** By which the upstream knows its requests. */
  readonly name: string;
  readonly accountId: string;
  readonly keyId: string;
  readonly key: string;
}

let customers = 0;

/** An account with credit and a key, known to all replicas. */
async function customer(
  limits: { readonly account?: number; readonly plan?: string; readonly key?: Operation<'create_key'> } = {},
): Promise<Customer> {
  const [first] = replicas;
  const name = `customer-${++customers}`;
  const account = await report(first, { kind: 'create_account', name });
  const { accountId } = account;
  const credit = { microcents: '100000000000', reference: undefined, idempotencyKey: name };
  await report(first, { kind: 'move_credit', movement: 'grant', accountId, ...credit });
  if (limits.account !== undefined)
    await report(first, { kind: 'limit_account', accountId, limits: { concurrencyMax: limits.account } });
  if (limits.plan !== undefined) await report(first, { kind: 'plan_account', accountId, plan: limits.plan });
  const key = await report(first, {
    ...(limits.key ?? { kind: 'create_key', name }),
    accountId,
  });
  for (const replica of replicas) {
    await until(async () => {
      const answer = await fetch(`${replica.url}/v1/models`, { headers: { authorization: `Bearer ${key.key}` } });
      await answer.arrayBuffer();
      return answer.status === 200;
    }, longMs);
  }
  return { name, accountId, keyId: key.keyId, key: key.key };
}

const keyWith = (limits: NonNullable<Operation<'create_key'>['limits']>) =>
  ({ kind: 'create_key', accountId: undefined, name: 'limited', expiresAt: undefined, limits }) as const;

interface Answered {
  readonly status: number;
  readonly code: string | undefined;
  readonly headers: Headers;
}

/** Status 0: the connection broke, as one does that was idle for long. */
async function ask(replica: TestService, { name, key }: Customer): Promise<Answered> {
  const body = { model: 'demo', max_tokens: 10, messages: [{ role: 'user', content: name }] };
  let answer: Response;
  let text: string;
  try {
    answer = await replica.chat(body, { key });
    text = await answer.text();
  } catch {
    return { status: 0, code: undefined, headers: new Headers() };
  }
  const error = answer.status === 200 ? undefined : (JSON.parse(text) as { error?: { code?: string } }).error;
  return { status: answer.status, code: error?.code, headers: answer.headers };
}

/** As a client does that is refused: it comes again, after a second or less. */
async function insist(replica: TestService, who: Customer, pauseMs = 250): Promise<void> {
  const deadline = performance.now() + longMs * 3;
  for (;;) {
    const { status, code } = await ask(replica, who);
    if (status === 200) return;
    // A machine with too much to do is late for the database, or for the client.
    assert.ok(code === 'concurrency_limit_exceeded' || [0, 408, 500].includes(status), `${status} ${code}`);
    assert.ok(performance.now() < deadline, 'refused for ever');
    await sleep(pauseMs * (0.5 + Math.random()));
  }
}

/** Looks at how many run at the upstream until `work` is over: the share of looks with at least that many. */
async function watched(name: string, atLeast: number, work: Promise<unknown>): Promise<number> {
  let [looks, enough] = [0, 0];
  const timer = setInterval(() => {
    looks++;
    if ((counting.now.get(name) ?? 0) >= atLeast) enough++;
  }, 20);
  try {
    await work;
  } finally {
    clearInterval(timer);
  }
  return looks === 0 ? 1 : enough / looks;
}

test('a cap of 10, 500 clients on three replicas: the upstream never sees 11, and sees 10 while clients wait', async (t) => {
  const who = await customer({ account: 10 });
  const now = (): number => counting.now.get(who.name) ?? 0;
  // Long beside what the test itself takes on a busy machine, which is time in which the upstream does not see it.
  counting.answerMs = 3_000;
  const stop = new AbortController();
  const seen = { served: 0, refused: 0 };
  const crowd = Promise.all(
    Array.from({ length: 500 }, async (_, index) => {
      while (!stop.signal.aborted) {
        const { status } = await ask(replicas[index % 3]!, who);
        seen[status === 200 ? 'served' : 'refused']++;
        await sleep(2_000 + Math.random() * 2_000);
      }
    }),
  );
  await until(() => now() >= 9, longMs);
  const looks = new Array<number>(12).fill(0);
  const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);
  const looking = setInterval(() => looks[Math.min(now(), looks.length - 1)]!++, 20);
  // A machine that is too busy to look has to look for longer.
  await until(() => sum(looks) >= 500, longMs * 3);
  clearInterval(looking);
  stop.abort();
  await crowd;
  const all = sum(looks);
  const mean = sum(looks.map((count, running) => count * running)) / all;
  t.diagnostic(`${seen.served} served, ${seen.refused} refused; at the upstream: mean ${mean.toFixed(2)}`);
  t.diagnostic(`looks by what ran: ${looks.join(' ')}`);
  assert.equal(counting.most.get(who.name), 10);
  assert.equal(looks[11], 0, 'more than the cap');
  assert.ok((looks[9]! + looks[10]!) / all > 0.4);
});

for (const cap of [1, 2]) {
  test(`a cap of ${cap} on three replicas: never passed, and no replica is left out`, async (t) => {
    const who = await customer({ key: keyWith({ concurrencyMax: cap }) });
    counting.answerMs = 50;
    await Promise.all(
      replicas.flatMap((replica) =>
        Array.from({ length: 5 }, async () => {
          for (let times = 0; times < 4; times++) await insist(replica, who);
        }),
      ),
    );
    t.diagnostic(`at most ${counting.most.get(who.name)}`);
    assert.equal(counting.most.get(who.name), cap);
  });
}

for (const [what, plan, limit] of [
  ['a quota', 'thirty', 30],
  ['a quota', 'hundred', 100],
  ['requests a minute', undefined, 60],
] as const) {
  test(`${what} of ${limit}, ten times as many offered to three replicas at once: exactly ${limit}`, async (t) => {
    counting.answerMs = 5;
    const perMinute = plan === undefined;
    for (let tries = 0; ; tries++) {
      assert.ok(tries < 10, 'the machine is too slow for a minute');
      const limits = perMinute ? keyWith({ requestsPerMinute: limit }) : keyWith({ planKey: true });
      const who = await customer({ account: 1_000, key: limits, ...(perMinute ? {} : { plan }) });
      const begun = performance.now();
      const first = await ask(replicas[0], who);
      const resetMs = Number(first.headers.get('ratelimit-reset')) * 1_000;
      if (perMinute && resetMs < 20_000) continue;
      const offered = await Promise.all(
        Array.from({ length: 10 * limit - 1 }, (_, index) => ask(replicas[index % 3]!, who)),
      );
      const answered = [first, ...offered].filter(({ status }) => status === 200).length;
      const served = (): number => counting.served.get(who.name) ?? 0;
      const crowd = served();
      assert.ok(answered <= crowd && crowd <= limit, `${answered} of ${crowd} in the crowd`);
      // What was on its way between replicas is had by those who come again.
      for (
        const deadline = performance.now() + 10_000;
        served() < limit && performance.now() < deadline;
        await sleep(100)
      )
        for (const replica of replicas) await ask(replica, who);
      const late = await Promise.all(replicas.map((replica) => ask(replica, who)));
      if (perMinute && performance.now() - begun > resetMs - 1_000) continue;
      t.diagnostic(`${crowd} in the crowd`);
      assert.equal(served(), limit);
      for (const { status, code, headers } of late) {
        assert.deepEqual([status, code], [429, perMinute ? 'rate_limit_exceeded' : 'request_quota_exceeded']);
        assert.equal(headers.get('ratelimit-limit'), String(limit));
        assert.equal(headers.get('ratelimit-remaining'), '0');
        assert.equal(headers.get('retry-after'), headers.get('ratelimit-reset'));
      }
      return;
    }
  });
}

test('all slots idle on one replica, a burst on another: served, no refusal for longer than a second', async (t) => {
  const who = await customer({ account: 10 });
  const [a, b] = replicas;
  counting.answerMs = 300;
  await Promise.all(Array.from({ length: 10 }, () => insist(a, who)));
  const begun = performance.now();
  let last = begun;
  await Promise.all(
    Array.from({ length: 10 }, async () => {
      while ((await ask(b, who)).status !== 200) last = performance.now();
    }),
  );
  t.diagnostic(`the last refusal ${(last - begun).toFixed(0)} ms after the burst began`);
  assert.ok(last - begun < 10_000);
  assert.ok(counting.most.get(who.name)! <= 10);
});

test('RateLimit-Remaining is never more than what is left, and comes down on every replica', async () => {
  const who = await customer({ plan: 'hundred', account: 1_000, key: keyWith({ planKey: true }) });
  counting.answerMs = 0;
  for (let used = 1; used <= 60; used++) {
    const { status, headers } = await ask(replicas[used % 3]!, who);
    assert.equal(status, 200);
    const remaining = Number(headers.get('ratelimit-remaining'));
    // What it knows of the others may be from before their last requests; their shares count as used.
    assert.ok(
      remaining <= 100 - Math.floor(used / 3) && remaining >= 100 - used - 3 * 16,
      `${remaining} after ${used}`,
    );
  }
});

test('limits that are changed reach the shares of every replica: lowered, raised, another plan', async (t) => {
  const who = await customer({ account: 9 });
  counting.answerMs = 400;
  const stop = new AbortController();
  const load = Promise.all(
    replicas.flatMap((replica) =>
      Array.from({ length: 6 }, async () => {
        while (!stop.signal.aborted) {
          await ask(replica, who);
          await sleep(30);
        }
      }),
    ),
  );
  const now = (): number => counting.now.get(who.name) ?? 0;
  try {
    await until(() => now() === 9, longMs);
    await report(replicas[1], { kind: 'limit_account', accountId: who.accountId, limits: { concurrencyMax: 3 } });
    const lowered = performance.now();
    await until(() => now() <= 3, longMs);
    t.diagnostic(`lowered after ${(performance.now() - lowered).toFixed(0)} ms`);
    await sleep(1_000); // all replicas have heard of it
    counting.most.set(who.name, 0);
    await until(() => now() === 3, longMs);
    const share = await watched(who.name, 3, sleep(3_000));
    t.diagnostic(`at most ${counting.most.get(who.name)}, 3 for ${(share * 100).toFixed(0)} % of the time`);
    assert.equal(counting.most.get(who.name), 3);
    await report(replicas[2], { kind: 'limit_account', accountId: who.accountId, limits: { concurrencyMax: 6 } });
    await until(() => now() === 6, longMs);
    assert.ok(counting.most.get(who.name)! <= 6);
    await report(replicas[0], { kind: 'limit_key', keyId: who.keyId, limits: { concurrencyMax: 2 } });
    await until(() => now() <= 2, longMs);
  } finally {
    stop.abort();
    await load;
  }
});

test("a replica that is paused until it is taken for dead: its places are others', and what it ran ends when it wakes", async (t) => {
  const who = await customer({ account: 4 });
  const [one, two, paused] = replicas;
  counting.answerMs = 120_000;
  const running = Array.from({ length: 4 }, () => ask(paused, who));
  await until(() => counting.now.get(who.name) === 4, longMs);
  assert.equal((await ask(one, who)).code, 'concurrency_limit_exceeded');
  process.kill(paused.pid, 'SIGSTOP');
  const begun = performance.now();
  try {
    counting.answerMs = 100;
    await insist(one, who);
    const ms = performance.now() - begun;
    t.diagnostic(`free after ${ms.toFixed(0)} ms`);
    assert.ok(ms > 4_000, 'not before it can be taken for dead');
  } finally {
    process.kill(paused.pid, 'SIGCONT');
  }
  for (const { status, code } of await Promise.all(running)) assert.deepEqual([status, code], [500, 'internal_error']);
  await until(() => counting.now.get(who.name) === 0, longMs);
  counting.most.set(who.name, 0);
  await Promise.all([one, two, paused].flatMap((replica) => Array.from({ length: 4 }, () => insist(replica, who))));
  assert.ok(counting.most.get(who.name)! <= 4);
  const rows = await server.sql(
    url,
    `select count(*)::int as count from usage where account_id = '${who.accountId}' and ending in ('lost', 'crashed') and cost = 0`,
  );
  assert.deepEqual(rows, [{ count: 4 }]);
});

test('a replica that is killed with slots taken: they are free again within six seconds', async (t) => {
  const who = await customer({ account: 5 });
  const [one, , killed] = replicas;
  counting.answerMs = 120_000;
  const cut = Array.from({ length: 5 }, () => ask(killed, who).catch(() => undefined));
  await until(() => counting.now.get(who.name) === 5, longMs);
  assert.equal((await ask(one, who)).code, 'concurrency_limit_exceeded');
  await killed.stop('SIGKILL');
  await Promise.all(cut);
  const begun = performance.now();
  counting.answerMs = 100;
  await Promise.all(Array.from({ length: 5 }, () => insist(one, who)));
  const ms = performance.now() - begun;
  t.diagnostic(`free after ${ms.toFixed(0)} ms`);
  assert.ok(ms < 20_000, `${ms} ms`); // 6 s, on a machine with nothing else to do
  assert.equal(counting.most.get(who.name), 5);
});

test('nothing is left of what was leased when the replicas have been stopped', async () => {
  for (const replica of replicas) if (!replica.hasEnded) assert.equal(await replica.stop(), 0);
  assert.deepEqual(await server.sql(url, 'select * from limit_share'), []);
  assert.deepEqual(await server.sql(url, `select * from limit_window where kind = 'running' and used <> 0`), []);
  const quotas = await server.sql(url, `select used::int as used from limit_window where kind = 'quota' order by used`);
  const [thirty, sixty, hundred] = quotas.map(({ used }) => Number(used));
  assert.deepEqual([thirty, hundred], [30, 100]);
  // What the killed one had of it stays counted.
  assert.ok(sixty !== undefined && sixty >= 60 && sixty <= 60 + 16, String(sixty));
});
