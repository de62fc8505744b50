/**
 * The statements of limits on a real PostgreSQL against the limit server in memory, step by step (money.md, "Limits across replicas"):
 * the shares of all together are never more than the limit, and everything comes back.
 */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';

import { LimitServer } from '../../billing/rate-limits/limit-server.ts';
import { steadyClock } from '../../../src/billing/rate-limits/steady-clock.ts';
import { Windows } from '../../../src/billing/rate-limits/windows.ts';
import type { LimitAnswer, LimitExchange, LimitShare } from '../../../src/store/limit-leases.ts';
import type { PostgresStore } from '../../../src/store/postgres/store.ts';
import { MemoryWindows } from '../../billing/rate-limits/memory-windows.ts';
import { mulberry32 } from '../../support/random.ts';
import { until } from '../../support/service.ts';
import { openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';
import { Wire } from './wire.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const running = (subject: string, changes: Partial<LimitExchange> = {}): LimitExchange => ({
  subject,
  kind: 'running',
  lengthMs: 0,
  startsAt: 0,
  limit: 10,
  back: 0,
  owed: 0,
  least: 0,
  need: 0,
  want: 0,
  leaves: false,
  ...changes,
});

/** A replica that takes note of its answers. */
class Holder {
  readonly store: PostgresStore;
  restored: (readonly LimitShare[])[] = [];
  losses = 0;

  private constructor(store: PostgresStore) {
    this.store = store;
    store.limits.listen({
      restored: (shares) => this.restored.push(shares),
      lost: () => this.losses++,
    });
  }

  static async open(t: TestContext, url: string): Promise<Holder> {
    return new Holder((await openReplica(t, url)).store);
  }

  exchange(...asks: readonly LimitExchange[]): Promise<readonly LimitAnswer[]> {
    return this.store.limits.exchange(() => asks);
  }
}

const sumsOf = (url: string): Promise<readonly Readonly<Record<string, unknown>>[]> =>
  server.sql(
    url,
    `select subject, kind, used::int as used, coalesce((select sum(held) from limit_share as share where share.subject = limit_window.subject
       and share.kind = limit_window.kind and share.length = limit_window.length), 0)::int as held from limit_window order by 1, 2`,
  );

test('slots are leased up to the limit, in shares, and come back', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await Holder.open(t, url), await Holder.open(t, url)];
  assert.deepEqual(await one.exchange(running('a', { least: 1, need: 7, want: 7 })), [
    { startsAt: 0, granted: 7, held: 7, used: 7 },
  ]);
  assert.deepEqual(await two.exchange(running('a', { least: 1, need: 7, want: 7 })), [
    { startsAt: 0, granted: 3, held: 3, used: 10 },
  ]);
  assert.deepEqual(await two.store.limits.wanted(), []);
  assert.deepEqual(await one.store.limits.wanted(), [{ subject: 'a', kind: 'running', lengthMs: 0, contenders: 2 }]);
  // A lower limit: nothing is granted until all together are below it.
  assert.deepEqual(await one.exchange(running('a', { limit: 4, back: 5, least: 1, need: 1, want: 1 })), [
    { startsAt: 0, granted: 0, held: 2, used: 5 },
  ]);
  assert.deepEqual(await two.exchange(running('a', { limit: 4, back: 2, least: 1, need: 1, want: 1 })), [
    { startsAt: 0, granted: 1, held: 2, used: 4 },
  ]);
  assert.deepEqual(await two.exchange(running('a', { back: 9, leaves: true })), [
    { startsAt: 0, granted: 0, held: 0, used: 2 },
  ]);
  assert.deepEqual(await sumsOf(url), [{ subject: 'a', kind: 'running', used: 2, held: 2 }]);
});

test('a replica that has expired has its slots returned, not its windows; late exchanges do nothing', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await Holder.open(t, url), await Holder.open(t, url)];
  const hour = 3_600_000;
  const quota = running('a', {
    kind: 'quota',
    lengthMs: hour,
    startsAt: 5 * hour,
    limit: 100,
    least: 1,
    need: 9,
    want: 9,
  });
  await one.exchange(running('a', { least: 1, need: 7, want: 7 }), quota);
  const { safeUntilMs } = one.store.ledger;
  assert.ok(safeUntilMs > performance.now() && safeUntilMs < performance.now() + 5_000);
  await server.sql(
    url,
    `delete from replica where id = '\\x${Buffer.from(one.store.ledger.replicaId).toString('hex')}'`,
  );
  await until(() => one.losses > 0, 30_000);
  await until(async () => (await sumsOf(url)).every(({ held }) => held === 0), 30_000);
  assert.deepEqual(
    (await sumsOf(url)).map(({ kind, used }) => [kind, used]),
    [
      ['quota', 9],
      ['running', 0],
    ],
  );
  // What it returns of its earlier epoch is not counted again.
  await until(async () => (await one.exchange(running('a', { back: 7 })).catch(() => undefined)) !== undefined, 30_000);
  assert.deepEqual(await two.exchange(running('a', { least: 1, need: 20, want: 20 })), [
    { startsAt: 0, granted: 10, held: 10, used: 10 },
  ]);
  assert.equal(two.losses, 0);
});

test('an exchange whose answer was lost is found out before the next one', async (t) => {
  const url = await server.databaseWithTables();
  const wire = await Wire.open(server.port);
  t.after(() => wire.close());
  const holder = await Holder.open(t, wire.url(url));
  await holder.exchange(running('first', { least: 1, need: 1, want: 1 }));
  for (let times = 1; times <= 5; times++) {
    wire.loseAnswerTo = `lost-${times}`;
    await assert.rejects(holder.exchange(running(`lost-${times}`, { least: 1, need: 2, want: 2 })));
    assert.equal(wire.lost, times);
    let asked: readonly LimitShare[] = [];
    const [answer] = await holder.store.limits.exchange(() => {
      asked = holder.restored.at(-1)!;
      return [running(`lost-${times}`, { back: 1 })];
    });
    const held = asked.find(({ subject }) => subject === `lost-${times}`)?.held ?? 0;
    assert.equal(answer?.held, Math.max(0, held - 1));
  }
  for (const { used, held } of await sumsOf(url)) assert.equal(used, held);
});

test('the statements do what the limit server does, over thousands of random steps', async (t) => {
  const url = await server.databaseWithTables();
  const holders = await Promise.all([1, 2, 3].map(() => Holder.open(t, url)));
  const begin = 1_800_000_000_000;
  let ms = 0;
  const windows = new Windows({ store: new MemoryWindows(), now: steadyClock(begin, () => ms) });
  const limitServer = new LimitServer(windows, () => ms);
  const seed = Number(process.env['TOKENHOUSE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  t.diagnostic(`TOKENHOUSE_SEED=${seed}`);
  const random = mulberry32(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  const steps = Number(process.env['TOKENHOUSE_STEPS'] ?? 1500);
  const kinds = ['running', 'quota', 'requests', 'tokens'] as const;
  let granted = 0;
  let short = 0;
  for (let step = 0; step < steps; step++) {
    const index = below(3);
    if (below(20) === 0) ms += below(40_000);
    const asks = new Map<string, LimitExchange>();
    for (let count = 1 + below(3); count > 0; count--) {
      const kind = kinds[below(4)]!;
      const subject = `acct_${below(3)}`;
      const lengthMs = kind === 'running' ? 0 : kind === 'quota' ? 3_600_000 : 60_000;
      const need = below(3) === 0 ? 0 : 1 + below(12);
      asks.set(`${subject} ${kind}`, {
        subject,
        kind,
        lengthMs,
        startsAt: kind === 'running' ? 0 : windows.startOf({ subject, kind, lengthMs }),
        limit: 1 + below(60),
        back: below(3) === 0 ? below(10) : 0,
        owed: kind === 'tokens' && below(4) === 0 ? below(20) : 0,
        least: need === 0 ? 0 : 1 + below(need),
        need,
        want: need + below(20),
        leaves: kind !== 'running' && below(20) === 0,
      });
    }
    const batch = [...asks.values()];
    const answers = await holders[index]!.exchange(...batch);
    assert.deepEqual(answers, limitServer.exchange(String(index), batch), `step ${step}`);
    for (const [at, { need, limit }] of batch.entries()) {
      const answer = answers[at]!;
      granted += answer.granted;
      if (answer.granted < need) short++;
      if (answer.granted > 0) assert.ok(answer.used <= limit, `step ${step}`);
    }
  }
  assert.ok(granted > 100 && short > 100, `${granted} ${short}`);
  const sums = await sumsOf(url);
  for (const { kind, used, held } of sums) if (kind === 'running') assert.equal(used, held);
  for (const { store } of holders.slice(1)) await store.close();
  const [only] = holders;
  await until(async () => {
    const shares = await server.sql(url, 'select count(distinct replica_id)::int as count from limit_share');
    return Number(shares[0]?.['count']) <= 1;
  }, 30_000);
  limitServer.drop('1');
  limitServer.drop('2');
  for (const { subject, kind, used } of await sumsOf(url))
    if (kind === 'running')
      assert.equal(used, limitServer.used({ subject: String(subject), kind: 'running', lengthMs: 0 }));
  assert.equal(only?.losses, 0);
});
