/** Counts of limits on a real PostgreSQL, and what a plan covers (money.md, "Plans" and "Limits across replicas"). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { WindowCount } from '../../../src/store/repositories/limit-windows.ts';
import { usage } from '../../store/fixture.ts';
import { assertRight, balanceOf, customer, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const dayMs = 86_400_000;
const count = (subject: string, startsAt: number, used: number): WindowCount => ({
  subject,
  kind: 'quota',
  lengthMs: dayMs,
  startsAt,
  used,
});

test('replicas add to the same counts, in whatever order they name them, and nothing is lost', async (t) => {
  const url = await server.databaseWithTables();
  const replicas = await Promise.all([1, 2, 3].map(() => openReplica(t, url)));
  const subjects = ['acct_a', 'acct_b', 'acct_c', 'acct_d'];
  const rounds = 40;
  await Promise.all(
    replicas.map(async ({ store }, replica) => {
      for (let round = 0; round < rounds; round++) {
        const changes = subjects.map((subject) => count(subject, 5 * dayMs, replica + 1));
        await store.repositories.addLimitWindows({ changes: round % 2 === 0 ? changes : changes.toReversed() });
      }
    }),
  );
  const { repositories } = replicas[0]!.store;
  const loaded = await repositories.loadLimitWindows({ at: 5 * dayMs + 1 });
  assert.deepEqual(
    loaded,
    subjects.map((subject) => count(subject, 5 * dayMs, rounds * (1 + 2 + 3))),
  );
  assert.deepEqual(await repositories.loadLimitWindows({ at: 5 * dayMs + 1, after: loaded[1]! }), loaded.slice(2));
  assert.deepEqual(await repositories.loadLimitWindows({ at: 6 * dayMs }), []);
});

test('a later window takes the place of the one before; what comes late for that is dropped', async (t) => {
  const { store } = await openReplica(t, await server.databaseWithTables());
  const add = async (startsAt: number, used: number): Promise<readonly number[]> => {
    const [row] = await store.repositories.addLimitWindows({ changes: [count('acct_a', startsAt, used)] });
    return [row!.startsAt / dayMs, row!.used];
  };
  assert.deepEqual(await add(5 * dayMs, 3), [5, 3]);
  assert.deepEqual(await add(6 * dayMs, 1), [6, 1]);
  assert.deepEqual(await add(5 * dayMs, 7), [6, 1]);
  assert.deepEqual(await add(6 * dayMs, -1), [6, 0]);
  // Of a clock that was far ahead.
  assert.deepEqual(await add(400 * dayMs, 9), [400, 9]);
  assert.deepEqual(await add(6 * dayMs, 2), [6, 2]);
});

test('what a plan covers is recorded without a credit lease, and the ledger is consistent', async (t) => {
  const url = await server.databaseWithTables();
  const { store } = await openReplica(t, url);
  await customer(store, 'acct_a', 1000n);
  const row = usage('acct_a', 70n, {
    costMicrocents: 0n,
    holdMicrocents: 0n,
    unchargedMicrocents: 70n,
    plan: 'standard',
  });
  assert.equal(await store.ledger.settle(row), 'billed');
  const [known] = await store.repositories.listUsage({ accountId: 'acct_a' });
  assert.deepEqual([known?.plan, known?.costMicrocents, known?.unchargedMicrocents], ['standard', 0n, 70n]);
  assert.equal(await balanceOf(store, 'acct_a'), 1000n);
  await assertRight(url);
});

test('the clock is the one of the database', async (t) => {
  const { store } = await openReplica(t, await server.databaseWithTables());
  assert.ok(Math.abs(store.now() - Date.now()) < 60_000);
});
