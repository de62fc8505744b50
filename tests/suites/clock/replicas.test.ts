/**
 * Two replicas on one database, one of which is 400 days ahead, an hour ahead, or an hour behind: what they share goes by the
 * clock of the database, so nobody can tell which of them has answered (reliability S5, M4).
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertRight } from '../postgres/fixture.ts';
import { report } from '../../support/workers.ts';
import { ask, asked, serviceOn, stream } from '../postgres/replica-service.ts';
import { PostgresServer } from '../postgres/server.ts';
import { until } from '../../support/service.ts';
import type { TestService } from '../../support/service.ts';
import { fakeClock } from './fake-clock.ts';

const longMs = 60_000;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** All of a test, on a slow machine; every offset is far above. */
const aboutMs = 20 * 60_000;
const included = 5;
const offsets = ['+400d', '+1h', '-1h'] as const;

const opened: (() => unknown)[] = [];
let server: PostgresServer;
let url = '';
let accountId = '';
/** By its own clock, and by the wrong one. */
let right: TestService;
let wrong: TestService;
const clock = fakeClock({ after: (close) => void opened.push(close as () => unknown) });

before(async () => {
  server = await PostgresServer.start();
  opened.push(() => server.dispose());
  url = await server.createDatabase();
  const config = `plans: [{ name: some, included_requests: ${included}, window_hours: 24 }]\n`;
  right = serviceOn(url, { config });
  wrong = serviceOn(url, { config, environment: clock.environment });
  for (const service of [right, wrong]) opened.push(() => service.dispose());
  clock.set('+400d');
  // The one that is wrong makes the tables, the first account and its key.
  await wrong.start();
  ({ accountId } = wrong);
  Object.assign(right, { key: wrong.key, accountId });
  await right.start();
});
after(async () => {
  for (const close of opened.toReversed()) await close();
});

async function newKey(
  through: TestService,
  input: { readonly expiresAfterMs?: number; readonly isPlanKey?: boolean } = {},
): Promise<string> {
  const answer = await report(through, {
    kind: 'create_key',
    accountId,
    name: 'x',
    expiresAt: undefined,
    ...(input.expiresAfterMs === undefined ? {} : { expiresAfterMs: input.expiresAfterMs }),
    ...(input.isPlanKey === undefined ? {} : { limits: { planKey: true } }),
  });
  return answer.key;
}

const now = (): Promise<number> =>
  server
    .sql(url, 'select (extract(epoch from clock_timestamp()) * 1000)::bigint::text as now')
    .then(([row]) => Number(row!['now']));

const isNow = (ms: number, nowMs: number): boolean => Math.abs(ms - nowMs) < aboutMs;

for (const offset of offsets) {
  test(`requests are dated, found and kept in their month: ${offset}`, async () => {
    clock.set(offset);
    for (const service of [right, wrong]) {
      const answer = await asked(service);
      const nowMs = await now();
      const { created } = (await answer.json()) as { readonly created: number };
      assert.ok(isNow(created * 1_000, nowMs), `created ${created}`);
    }
    const nowMs = await now();
    const logged = Date.parse(String(wrong.log.at(-1)!['time']));
    assert.ok(Math.abs(logged - nowMs) > hourMs / 2, 'its own clock is wrong');
    const [span] = await server.sql(
      url,
      `select min(least(started_at, ended_at, key))::text as first, max(greatest(started_at, ended_at, key))::text as last
       from (select *, ('x' || encode(substring(request_id from 1 for 6), 'hex'))::bit(48)::bigint as key from usage) as usage`,
    );
    for (const name of ['first', 'last'])
      assert.ok(isNow(Number(span![name]), nowMs), `${name} ${String(span![name])}`);
    const places = await server.sql(url, 'select distinct tableoid::regclass::text as place from usage');
    const months = new Set(
      [new Date((await now()) - aboutMs), new Date(await now())].map((date) => date.toISOString().slice(0, 7)),
    );
    for (const { place } of places)
      assert.ok(
        [...months].some((month) => place === `usage_${month.replace('-', '_')}`),
        String(place),
      );
    const partitions = await server.sql(
      url,
      `select relname from pg_class where relname ~ '^usage_20..-?_?..$' and relkind = 'r'`,
    );
    assert.ok(partitions.length <= 5, 'none is made for a year that is not now');
  });

  test(`what a plan includes is counted once, with the same end of the window: ${offset}`, async () => {
    clock.set(offset);
    await report(wrong, { kind: 'plan_account', accountId, plan: 'some' });
    const key = await newKey(right, { isPlanKey: true });
    for (const service of [right, wrong])
      await until(async () => (await service.chat(ask, { key })).status !== 401, longMs);
    // Whatever was let in already, together they come to the end of it: each learns what the other has counted.
    const end = async (
      service: TestService,
    ): Promise<{ readonly resetMs: number; readonly endsAt: number; readonly at: number }> => {
      let last: Response | undefined;
      await until(async () => {
        last = await service.chat(ask, { key });
        if (last.status !== 429) await last.arrayBuffer();
        return last.status === 429;
      }, longMs);
      const { error } = (await last!.json()) as {
        readonly error: { readonly code: string; readonly window_end: string };
      };
      assert.equal(error.code, 'request_quota_exceeded');
      const at = await now();
      return {
        resetMs: Number(last!.headers.get('ratelimit-reset')) * 1_000,
        endsAt: Date.parse(error.window_end),
        at,
      };
    };
    const ends = [await end(right), await end(wrong)] as const;
    for (const { resetMs, endsAt, at } of ends) {
      assert.ok(Math.abs(at + resetMs - endsAt) < aboutMs, `${resetMs} ${endsAt} ${at}`);
      assert.ok(endsAt > at - aboutMs && endsAt < at + dayMs + aboutMs);
    }
    assert.ok(Math.abs(ends[0].endsAt - ends[1].endsAt) < 60_000, `${ends[0].endsAt} and ${ends[1].endsAt}`);
    await report(right, { kind: 'plan_account', accountId, plan: undefined });
  });

  test(`keys expire on both when they should: ${offset}`, async () => {
    clock.set(offset);
    for (const maker of [right, wrong]) {
      const long = await newKey(maker, { expiresAfterMs: hourMs / 2 });
      const short = await newKey(maker, { expiresAfterMs: 3_000 });
      for (const service of [right, wrong]) {
        await until(async () => (await service.chat(ask, { key: short })).status === 401, longMs);
        await until(async () => (await service.chat(ask, { key: long })).status === 200, longMs);
      }
    }
  });

  test(`rates hold from now until tomorrow on both: ${offset}`, async () => {
    clock.set(offset);
    const prices = { input: '7000000', output: '7000000', cacheRead: undefined };
    const validTo = (await now()) + dayMs / 2;
    await report(wrong, { kind: 'set_price', accountId, model: 'demo', ...prices, validFrom: undefined, validTo });
    for (const service of [right, wrong]) {
      const charged = async (): Promise<string> => {
        assert.equal((await asked(service)).status, 200);
        const rows = await server.sql(
          url,
          `select input_price::text as price from usage order by request_id desc limit 1`,
        );
        return String(rows[0]!['price']);
      };
      await until(async () => (await charged()) === '7000000', longMs);
    }
    // What was set by one clock is ended by the other.
    await report(right, { kind: 'remove_price', accountId, model: 'demo' });
    const left = await server.sql(url, `select 1 from account_price where valid_to > ${(await now()) + aboutMs}`);
    assert.deepEqual(left, []);
  });

  test(`an idempotency key stands for its request for a day, whichever replica is asked: ${offset}`, async () => {
    clock.set(offset);
    for (const [first, second] of [
      [right, wrong],
      [wrong, right],
    ] as const) {
      const headers = { 'idempotency-key': crypto.randomUUID() };
      const once = await first.chat(ask, { headers });
      assert.equal(once.status, 200);
      const again = await second.chat(ask, { headers });
      assert.equal(again.status, 200);
      assert.equal(await again.text(), await once.text());
      const rows = await server.sql(
        url,
        `select 1 from usage where request_id = (select request_id from idempotent_request order by created_at desc limit 1)`,
      );
      assert.equal(rows.length, 1);
    }
    const [row] = await server.sql(url, 'select count(*)::int as n from idempotent_request');
    assert.ok(Number(row!['n']) >= 2, 'none is deleted before its day is over');
  });
}

test('who is killed with a wrong clock leaves nothing behind: what it held is free, what it ran is recorded', async () => {
  clock.set('+400d');
  const running = wrong.chat(stream('slow')).catch(() => undefined);
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 1, longMs);
  await wrong.stop('SIGKILL');
  await running;
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 0, longMs);
  await until(
    async () =>
      (await server.sql(url, 'select 1 from credit_lease where replica_id not in (select id from replica)')).length ===
      0,
    longMs,
  );
  const [crashed] = await server.sql(
    url,
    `select cost::text, (ended_at - started_at)::text as ms from usage where ending = 'crashed'`,
  );
  assert.equal(crashed?.['cost'], '0');
  assert.ok(Number(crashed?.['ms']) >= 0 && Number(crashed?.['ms']) < aboutMs);
  assert.equal((await asked(right)).status, 200);
  await wrong.start();
  assert.equal((await asked(wrong)).status, 200);
  // The commands, too, by whichever clock.
  for (const service of [right, wrong]) {
    const { code, stdout, stderr } = await service.command('costs', '--by', 'model', '--days', '1', '--json');
    assert.equal(code, 0, stderr);
    const [sum] = JSON.parse(stdout) as readonly { readonly requests: number }[];
    assert.ok(sum !== undefined && sum.requests > 20, stdout);
    await service.verify();
  }
  await assertRight(url);
});
