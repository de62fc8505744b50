/**
 * Every order in which the statements of limits of two and of three replicas can meet while their transactions are open: the
 * shares of all together are what the limit's row says and never more than the limit, nothing is stranded, and nobody
 * is chosen to lose (interleavings.test.ts has the same for money).
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import pg from 'pg';

import type { LimitExchange } from '../../../src/store/limit-leases.ts';
import { clientConfig, type Run } from '../../../src/store/postgres/connection.ts';
import { beginEpoch, exchange, readShares, returnShares } from '../../../src/store/postgres/limit-statements.ts';
import { deleteExpired, register } from '../../../src/store/postgres/statements.ts';
import { openPostgresStore } from '../../../src/store/postgres/store.ts';
import { uuid } from '../../store/fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const slotsMax = 10;
const quotaMax = 12;
const lengthMs = 60_000;
const windowStart = 600_000;

/** Three replicas with 3 slots and 3 of the quota each, and old heartbeats: a reaper expires them. */
interface Scene {
  readonly subject: string;
  readonly replicas: readonly Uint8Array[];
  /** What was read of the first one's shares after its new epoch began. */
  restored?: readonly ShareRow[];
}

interface ShareRow {
  readonly kind: string;
  readonly startsAt: bigint;
  readonly held: bigint;
}

interface AnswerRow {
  readonly kind: string | null;
  readonly granted: bigint;
  readonly used: bigint;
}

/** One replica asks for several limits in one statement. */
async function ask(run: Run, replica: Uint8Array, subject: string, asks: readonly Partial<LimitExchange>[]) {
  const whole = asks.map((one) => ({
    ...{ subject, kind: 'running', lengthMs: 0, startsAt: 0, limit: slotsMax },
    ...{ back: 0, owed: 0, least: 0, need: 0, want: 0, leaves: false },
    ...one,
  }));
  const column = <Value>(of: (one: (typeof whole)[number]) => Value): readonly Value[] => whole.map(of);
  const { rows } = await run<AnswerRow>(exchange, [
    ...[replica, 0, column((one) => one.subject), column((one) => one.kind), column((one) => one.lengthMs)],
    ...[
      column((one) => one.startsAt),
      column((one) => one.limit),
      column((one) => one.back),
      column((one) => one.owed),
    ],
    ...[column((one) => one.least), column((one) => one.need), column((one) => one.want), column((one) => one.leaves)],
  ]);
  for (const { kind, granted, used } of rows) {
    if (kind === null || granted === 0n) continue;
    const { limit } = whole.find((one) => one.kind === kind)!;
    assert.ok(used <= BigInt(limit), `${kind}: ${used} of ${limit}`);
  }
}

const quota = (changes: Partial<LimitExchange>): Partial<LimitExchange> => ({
  ...{ kind: 'quota', lengthMs, startsAt: windowStart, limit: quotaMax },
  ...changes,
});

type Step = (run: Run, scene: Scene, replica: Uint8Array) => Promise<unknown>;

const steps: Readonly<Record<string, Step>> = {
  take: (run, { subject }, replica) => {
    const more = { least: 1, need: 2, want: 4 };
    return ask(run, replica, subject, [quota(more), more]);
  },
  returnUnused: (run, { subject }, replica) => ask(run, replica, subject, [{ back: 2 }, quota({ back: 1 })]),
  leave: (run, { subject }, replica) =>
    ask(run, replica, subject, [{ back: 3, leaves: true }, quota({ back: 1, leaves: true })]),
  reap: async (run) => {
    await run(deleteExpired, [5_000]);
    await run(returnShares, []);
  },
  nextWindow: (run, { subject }, replica) =>
    ask(run, replica, subject, [quota({ startsAt: windowStart + lengthMs, least: 1, need: 5, want: 5 })]),
  lowerLimit: (run, { subject }, replica) =>
    ask(run, replica, subject, [
      { limit: 4, back: 2, least: 1, need: 1, want: 1 },
      quota({ limit: 5, back: 1, least: 1, need: 1, want: 1 }),
    ]),
  // The first replica has lost an answer.
  restore: async (run, scene) => {
    const [first] = scene.replicas as [Uint8Array];
    await run(beginEpoch, [first]);
    scene.restored = (await run<ShareRow>(readShares, [first])).rows;
  },
};
const names = Object.keys(steps);

test('all orders of two and three replicas', async () => {
  const url = await server.databaseWithTables();
  // The schema alone; nobody beats or reaps here but the steps.
  await (await openPostgresStore({ address: { url }, shown: 'the test' })).close();
  const clients = await Promise.all(
    [0, 1, 2, 3].map(async () => {
      const client = new pg.Client(clientConfig({ url }));
      await client.connect();
      await client.query(`set deadlock_timeout = '50ms'`);
      return client;
    }),
  );
  const runs = clients.map((client): Run => async (statement, values) => {
    const { rows, rowCount } = await client.query({ ...statement, values: [...values] });
    return { rows: rows as never[], count: rowCount ?? 0 };
  });
  const stage = runs[3]!;
  const orders = [
    ...names.flatMap((one) => names.map((two) => [one, two])),
    ...names.flatMap((one) => names.flatMap((two) => names.map((three) => [one, two, three]))),
  ];
  let number = 0;
  for (const order of orders) {
    const said = order.join(' · ');
    const scene: Scene = { subject: `acct_${++number}`, replicas: [uuid(), uuid(), uuid()] };
    await setScene(stage, scene);

    // Each begins as soon as the one before has run, or waits for somebody.
    const begun: Promise<unknown>[] = [];
    for (const [index, name] of order.entries()) {
      const run = runs[index]!;
      await run({ text: 'begin' }, []);
      const acting = steps[name]!(run, scene, scene.replicas[index]!);
      let hasEnded = false;
      acting.finally(() => (hasEnded = true)).catch(() => {});
      begun.push(acting);
      while (!hasEnded && !(await isWaiting(stage, clients[index]!)))
        await new Promise((resolve) => setImmediate(resolve));
    }
    const end = async (index: number): Promise<void> => {
      try {
        await begun[index];
        await runs[index]!({ text: 'commit' }, []);
      } catch (error) {
        await runs[index]!({ text: 'rollback' }, []);
        throw new Error(said, { cause: error }); // not even by a reaper: all lock in the same order
      }
    };
    // The first lets go; after that the database decides who is next.
    await end(0);
    await Promise.all(begun.slice(1).map((_, index) => end(index + 1)));

    await judge(stage, scene, order);
    await clear(stage, scene);
  }
  assert.equal(number, 49 + 343);
  for (const client of clients) await client.end();
});

async function judge(stage: Run, scene: Scene, order: readonly string[]): Promise<void> {
  const said = order.join(' · ');
  const { subject } = scene;
  // The next sweep of anybody alive.
  if (order.includes('reap')) await steps['reap']!(stage, scene, scene.replicas[0]!);
  const { rows: limits } = await stage<{ kind: string; startsAt: bigint; used: bigint; held: bigint }>(
    {
      text: `select kind, starts_at as "startsAt", used, coalesce((select sum(held) from limit_share as share
          where share.subject = limit_window.subject and share.kind = limit_window.kind
            and share.starts_at = limit_window.starts_at), 0) as held
        from limit_window where subject = $1`,
    },
    [subject],
  );
  const of = (kind: string) => limits.find((row) => row.kind === kind)!;
  const [slots, window] = [of('running'), of('quota')];
  assert.equal(slots.used, slots.held, `${said}: slots`);
  assert.ok(slots.used >= 0n && slots.used <= BigInt(slotsMax), `${said}: ${slots.used} slots`);
  assert.ok(window.used >= window.held && window.used <= BigInt(quotaMax), `${said}: ${window.used} of the quota`);
  const isNext = order.includes('nextWindow') && window.startsAt === BigInt(windowStart + lengthMs);
  // One that came before it was reaped had its window moved.
  assert.ok(isNext || window.startsAt === BigInt(windowStart), `${said}: ${window.startsAt}`);
  if (order.includes('reap')) {
    assert.equal(slots.used, 0n, `${said}: nothing is stranded`);
  } else {
    // Those who have left have spent the rest of theirs.
    if (!order.includes('leave')) assert.equal(window.used, window.held, `${said}: quota`);
    if (order.includes('nextWindow')) assert.ok(isNext, said);
  }
  if (order.includes('restore') && !order.includes('reap')) {
    // Nothing of the first replica happens any more once it has read what it has.
    const { rows } = await stage<ShareRow>(readShares, [scene.replicas[0]!]);
    assert.deepEqual(sorted(rows), sorted(scene.restored!), said);
  }
}

const sorted = (rows: readonly ShareRow[]): readonly string[] =>
  rows.map(({ kind, startsAt, held }) => `${kind} ${startsAt} ${held}`).toSorted();

async function setScene(run: Run, { subject, replicas }: Scene): Promise<void> {
  await run(
    {
      text: `insert into limit_window (subject, kind, length, starts_at, used) values ($1, 'running', 0, 0, 0), ($1, 'quota', $2, $3, 0)`,
    },
    [subject, lengthMs, windowStart],
  );
  for (const replica of replicas) {
    await run(register, [replica]);
    const three = { least: 3, need: 3, want: 3 };
    await ask(run, replica, subject, [three, quota(three)]);
  }
  await run({ text: 'update replica set heartbeat_at = 0' }, []);
}

/** Whether the session waits for another one's lock. */
async function isWaiting(run: Run, client: pg.Client): Promise<boolean> {
  const pid = (client as unknown as { readonly processID: number }).processID;
  const { rows } = await run<{ waits: boolean }>(
    { text: 'select cardinality(pg_blocking_pids($1::int)) > 0 as waits' },
    [pid],
  );
  return rows[0]?.waits === true;
}

async function clear(run: Run, { subject }: Scene): Promise<void> {
  await run({ text: 'delete from replica' }, []);
  await run({ text: 'delete from limit_share' }, []);
  await run({ text: 'delete from limit_window where subject = $1' }, [subject]);
}
