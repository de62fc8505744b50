/** What the tests on PostgreSQL share: stores that close after the test, and the ledger. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import pg from 'pg';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { openPostgresStore, type PostgresStore } from '../../../src/store/postgres/store.ts';
import type { Difference } from '../../../src/store/verify/difference.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { grant, MemoryBalances, uuid } from '../../store/fixture.ts';

export interface Replica {
  readonly store: PostgresStore;
  readonly free: MemoryBalances;
}

export async function openReplica(t: TestContext, url: string): Promise<Replica> {
  const free = new MemoryBalances();
  const store = await openPostgresStore({ address: { url }, shown: 'the test', free });
  t.after(() => store.close());
  return { store, free };
}

/** Holds as billing does: from memory, else asks; false is a 402. */
export async function hold({ store, free }: Replica, accountId: string, amount: bigint): Promise<boolean> {
  if (free.reserve(accountId, amount)) return true;
  free.credit(accountId, await store.ledger.leases.lease(accountId, amount));
  return free.reserve(accountId, amount);
}

/**
 * Replicas give back what is idle when one of them lacks it, which takes them a moment: what is there is asked for again,
 * for ten times as long as the service promises; what is not there must not be had at all.
 */
export async function soon(isThere: boolean, ask: () => Promise<boolean>): Promise<boolean> {
  const deadline = performance.now() + 10_000;
  for (;;) {
    if (await ask()) return true;
    if (!isThere || performance.now() > deadline) return false;
  }
}

export async function customer({ ledger }: PostgresStore, id: string, microcents: bigint): Promise<void> {
  await ledger.createAccount({ id, name: id, creditLimitMicrocents: 0n, at: Date.now(), changeId: uuid() });
  if (microcents > 0n) await ledger.transfer(grant(id, microcents));
}

export async function balanceOf({ repositories }: PostgresStore, accountId: string): Promise<bigint> {
  return (await repositories.getAccount({ accountId }))!.balanceMicrocents;
}

export async function differencesOf(url: string, owned = true): Promise<readonly Difference[]> {
  const db = kyselyOnPostgres({ url }, 1);
  try {
    return (await verifyLedger(db, { owned })).differences;
  } finally {
    await db.destroy();
  }
}

export async function assertRight(url: string, owned = true): Promise<void> {
  assert.deepEqual(await differencesOf(url, owned), []);
}

/** Everybody else waits for the table until it is given back. */
export async function lockTable(t: TestContext, url: string, table: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  t.after(() => client.end());
  await client.query(`begin; lock table ${table} in access exclusive mode`);
  return async () => void (await client.query('rollback'));
}
