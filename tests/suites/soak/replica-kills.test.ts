/**
 * kill -9 of one of three replicas, at any moment of their load (reliability S1, M4, M5; invariants I1 to I6): what a client has
 * seen to its end is charged once, nothing else is, and ten seconds later nothing of the dead is left. TOKENHOUSE_REPLICA_KILLS
 * says how often.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { mulberry32 } from '../../support/random.ts';
import { newRequestId } from '../../support/raw-client.ts';
import { until } from '../../support/service.ts';
import type { TestService } from '../../support/service.ts';
import { assertRight } from '../postgres/fixture.ts';
import { serviceOn, stream } from '../postgres/replica-service.ts';
import { PostgresServer } from '../postgres/server.ts';

const kills = Number(process.env['TOKENHOUSE_REPLICA_KILLS'] ?? 8);
const clientsOfEach = 4;
const loadMsMax = 1_500;
/** Promised are 2 s until it is ready and 10 s until nothing is left; the tests share their machine. */
const readyMsMax = 60_000;
const leftMsMax = 60_000;
const scripts = ['at once', 'short', 'paced', 'endless'];

test(`kill -9 of one of three replicas, ${kills} times: no acknowledged charge is lost or doubled, no lease or hold is left`, async (t) => {
  const seed = Number(process.env['TOKENHOUSE_SOAK_SEED'] ?? Date.now() % 2 ** 32);
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const server = await PostgresServer.start();
  t.after(() => server.dispose());
  const url = await server.createDatabase();
  const replicas = [1, 2, 3].map(() => serviceOn(url));
  for (const replica of replicas) t.after(() => replica.dispose());
  const [first] = replicas as [TestService, ...TestService[]];
  await first.start();
  for (const replica of replicas.slice(1)) {
    Object.assign(replica, { key: first.key, accountId: first.accountId });
    await replica.start();
  }
  const credit = await balanceOf(server, url, first.accountId);

  /** Public ids of answers that were seen to their end, and of all others that were sent. */
  const seen = new Set<string>();
  const others = new Set<string>();
  let goesOn = true;
  const load = replicas.flatMap((replica) =>
    Array.from({ length: clientsOfEach }, async () => {
      while (goesOn) {
        const id = newRequestId();
        const script = scripts[Math.floor(random() * scripts.length)]!;
        if (await oneRequest(replica, id, script, random() < 0.5)) seen.add(id);
        else others.add(id);
      }
    }),
  );
  const readyMs: number[] = [];
  const leftMs: number[] = [];
  try {
    for (let round = 1; round <= kills; round++) {
      const victim = replicas[Math.floor(random() * replicas.length)]!;
      const before = seen.size;
      await new Promise((resolve) => setTimeout(resolve, random() * loadMsMax));
      await victim.stop('SIGKILL');
      const killedAtMs = performance.now();
      await victim.start();
      readyMs.push(performance.now() - killedAtMs);
      assert.ok(readyMs.at(-1)! < readyMsMax);
      const ofTheDead = (table: string): string =>
        `select 1 from ${table} where replica_id not in (select id from replica)`;
      const left = `${ofTheDead('credit_lease')} union all ${ofTheDead('open_request')}`;
      await until(
        async () =>
          (await server.sql(url, left)).length === 0 &&
          (await server.sql(url, 'select 1 from replica')).length === replicas.length,
        leftMsMax,
      );
      leftMs.push(performance.now() - killedAtMs);
      // The others have not noticed, and the one that is back takes work.
      await until(() => seen.size > before + replicas.length, leftMsMax);
      await assertRight(url);
    }
  } finally {
    goesOn = false;
  }
  await Promise.all(load);
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 0, leftMsMax);
  const rows = await server.sql(url, 'select public_id as id, ending, cost::text as cost from usage');
  const byId = new Map(rows.map(({ id, ending, cost }) => [String(id), { ending, cost: BigInt(String(cost)) }]));
  assert.equal(byId.size, rows.length, 'no request has two rows');
  for (const id of seen) assert.equal(byId.get(id)?.ending, 'finished', `${id} was answered`);
  const endings = new Map<string, number>();
  for (const { ending } of byId.values()) endings.set(String(ending), (endings.get(String(ending)) ?? 0) + 1);
  t.diagnostic(
    `${seen.size} seen to their end, ${others.size} not; ${[...endings].map(([name, n]) => `${n} ${name}`).join(', ')}`,
  );
  t.diagnostic(`ready after ${inWords(readyMs)}; nothing left after ${inWords(leftMs)}`);
  assert.ok(seen.size > kills * 5 && (endings.get('crashed') ?? 0) > 0, 'the kills met requests in every phase');
  const spent = [...byId.values()].reduce((sum, { cost }) => sum + cost, 0n);
  const [refunds] = await server.sql(
    url,
    `select coalesce(sum(amount), 0)::text as sum from transfer where kind = 'refund'`,
  );
  assert.equal(await balanceOf(server, url, first.accountId), credit - spent + BigInt(String(refunds!['sum'])));
  for (const replica of replicas) assert.equal(await replica.stop(), 0);
  assert.deepEqual(
    await server.sql(
      url,
      'select 1 from credit_lease union all select 1 from open_request union all select 1 from replica',
    ),
    [],
  );
  await assertRight(url, false);
});

/** Whether its answer was seen to its end; clients of an endless one leave after a moment. */
async function oneRequest(replica: TestService, id: string, script: string, isStream: boolean): Promise<boolean> {
  const signal = AbortSignal.timeout(script === 'endless' ? 400 : 60_000);
  try {
    const body = { ...stream(script), stream: isStream };
    const answer = await replica.chat(body, { signal, headers: { 'x-request-id': id } });
    const text = await answer.text();
    if (answer.status !== 200) return false;
    return isStream ? /"finish_reason":"stop".*data: \[DONE\]\n\n$/s.test(text) : text.endsWith('}');
  } catch {
    // Killed, left, or nobody listens: a moment, so that the machine is not kept busy with being refused.
    await new Promise((resolve) => setTimeout(resolve, 20));
    return false;
  }
}

async function balanceOf(server: PostgresServer, url: string, accountId: string): Promise<bigint> {
  const [row] = await server.sql(
    url,
    `select (available + coalesce((select sum(remaining) from credit_lease where account_id = account.id), 0))::text as balance
     from account where id = '${accountId}'`,
  );
  return BigInt(String(row!['balance']));
}

function inWords(ms: readonly number[]): string {
  const sorted = ms.toSorted((a, b) => a - b);
  return `${sorted[Math.floor(sorted.length / 2)]!.toFixed(0)} ms (median), ${sorted.at(-1)!.toFixed(0)} ms (longest)`;
}
