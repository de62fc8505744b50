/** What the tests of the store share: a folder that goes away, rows that are right, and a store on a real file. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { FreeBalances, OpenRequest, Transfer, UsageRow } from '../../src/store/ledger.ts';
import { systemAccounts } from '../../src/store/ledger.ts';
import { openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { openSqliteStore, type SqliteStore, type SqliteStoreOptions } from '../../src/store/sqlite/store.ts';
import { publicIdOf, uuidMaker } from '../../src/platform/ids/uuid.ts';
import type { Difference } from '../../src/store/verify/difference.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';

export const uuid = uuidMaker();

/** Stores to be closed before the folders of a test are removed: Node runs a test's `after` hooks in the order of their registration. */
const openStores = new WeakMap<Pick<TestContext, 'after'>, Set<Pick<SqliteStore, 'close'>>>();

export function temporaryFolder(t: Pick<TestContext, 'after'>): string {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-store-'));
  t.after(async () => {
    await Promise.all([...(openStores.get(t) ?? [])].map((store) => store.close()));
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}

/** Opens a store that must not die, and closes it after the test. */
export async function openStore(
  t: Pick<TestContext, 'after'>,
  file: string,
  options: Partial<SqliteStoreOptions> = {},
): Promise<SqliteStore> {
  const store = await openSqliteStore({
    file,
    onFatal: (error) => {
      throw error;
    },
    ...options,
  });
  closeAfter(t, store);
  return store;
}

/** Closes a store after the test, and before its folder goes: a service stops when its file is deleted. */
export function closeAfter(t: Pick<TestContext, 'after'>, store: Pick<SqliteStore, 'close'>): void {
  const stores = openStores.get(t) ?? new Set();
  openStores.set(t, stores.add(store));
  // Closing is idempotent; there may be no folder of the test's own.
  t.after(() => store.close());
}

/** Free balances as billing keeps them, in a few lines. */
export class MemoryBalances implements FreeBalances {
  readonly of = new Map<string, bigint>();
  /** How often everything was lost. */
  epoch = 0;

  credit(balanceId: string, microcents: bigint): void {
    if (microcents !== 0n) this.of.set(balanceId, this.freeMicrocents(balanceId) + microcents);
  }

  reserve(balanceId: string, microcents: bigint): boolean {
    const free = this.freeMicrocents(balanceId);
    if (free < microcents) return false;
    this.of.set(balanceId, free - microcents);
    return true;
  }

  freeMicrocents(balanceId: string): bigint {
    return this.of.get(balanceId) ?? 0n;
  }

  drop(balanceId: string): void {
    if (this.of.get(balanceId) === 0n) this.of.delete(balanceId);
  }

  forget(): void {
    this.epoch++;
    this.of.clear();
  }
}

export async function customer(store: SqliteStore, id: string, microcents: bigint): Promise<void> {
  await store.ledger.createAccount({ id, name: id, creditLimitMicrocents: 0n, at: Date.now(), changeId: uuid() });
  if (microcents > 0n) await store.ledger.transfer(grant(id, microcents));
}

export function grant(
  accountId: string,
  amountMicrocents: bigint,
  idempotencyKey: string = crypto.randomUUID(),
): Transfer {
  return {
    id: uuid(),
    debitAccount: systemAccounts.promo,
    creditAccount: accountId,
    amountMicrocents,
    kind: 'grant',
    idempotencyKey,
    reference: null,
    by: 'test',
    at: Date.now(),
  };
}

export function chargeback(
  accountId: string,
  amountMicrocents: bigint,
  idempotencyKey: string = crypto.randomUUID(),
): Transfer {
  const { debitAccount, creditAccount, ...rest } = grant(accountId, amountMicrocents, idempotencyKey);
  return { ...rest, debitAccount: creditAccount, creditAccount: debitAccount, kind: 'chargeback' };
}

/** A finished request that costs `costMicrocents`: that many prompt tokens at 1 microcent each. */
export function usage(accountId: string, costMicrocents: bigint, changes: Partial<UsageRow> = {}): UsageRow {
  const requestId = changes.requestId ?? uuid();
  const now = Date.now();
  return {
    requestId,
    publicId: publicIdOf(requestId),
    clientId: null,
    accountId,
    keyId: 'key_000000000000',
    modelId: 'model',
    api: 'chat',
    streamed: false,
    startedAt: now,
    endedAt: now,
    promptTokens: Number(costMicrocents),
    cachedTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    costMicrocents,
    unchargedMicrocents: 0n,
    holdMicrocents: costMicrocents,
    ending: 'finished',
    finish: 'stop',
    errorCode: null,
    counted: false,
    inputPrice: 1_000_000n,
    outputPrice: 1_000_000n,
    cacheReadPrice: 1_000_000n,
    backend: 'scripted',
    firstTokenMs: 1,
    totalMs: 2,
    tags: null,
    plan: null,
    keyBudget: null,
    accountBudget: null,
    ...changes,
  };
}

export function openRequest(accountId: string, holdMicrocents: bigint, requestId = uuid()): OpenRequest {
  return { requestId, accountId, keyId: 'key_000000000000', modelId: 'model', holdMicrocents, startedAt: Date.now() };
}

export async function differencesOf(file: string, owned = true): Promise<readonly Difference[]> {
  const db = openReadOnly(file);
  try {
    return (await verifyLedger(db, { owned })).differences;
  } finally {
    await db.destroy();
  }
}

export async function balanceOf(store: SqliteStore, accountId: string): Promise<bigint> {
  const account = await store.repositories.getAccount({ accountId });
  return account!.balanceMicrocents;
}
