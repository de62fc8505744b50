/** What the tests on PostgreSQL share: stores that close after the test, budgets as billing keeps them, and the ledger. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { LeasedBalances } from '../../../src/store/ledger.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { openPostgresStore, type PostgresStore } from '../../../src/store/postgres/store.ts';
import type { Difference } from '../../../src/store/verify/difference.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { grant, uuid } from '../../store/fixture.ts';

/** Budgets in memory, in a few lines; `Billing` is the real one. */
export class Budgets implements LeasedBalances {
  readonly of = new Map<string, bigint>();
  lives = 0;

  credit(accountId: string, microcents: bigint): void {
    this.of.set(accountId, this.freeMicrocents(accountId) + microcents);
  }

  reserve(accountId: string, microcents: bigint): boolean {
    const free = this.freeMicrocents(accountId);
    if (free < microcents) return false;
    this.of.set(accountId, free - microcents);
    return true;
  }

  freeMicrocents(accountId: string): bigint {
    return this.of.get(accountId) ?? 0n;
  }

  forget(): void {
    this.lives++;
    this.of.clear();
  }
}

export interface Replica {
  readonly store: PostgresStore;
  readonly free: Budgets;
}

export async function openReplica(t: TestContext, url: string): Promise<Replica> {
  const free = new Budgets();
  const store = await openPostgresStore({ address: { url }, shown: 'the test', free });
  t.after(() => store.close());
  return { store, free };
}

/** Holds as billing does: from memory, else asks; false is a 402. */
export async function hold({ store, free }: Replica, accountId: string, amount: bigint): Promise<boolean> {
  if (free.reserve(accountId, amount)) return true;
  free.credit(accountId, await store.ledger.lease(accountId, amount));
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
