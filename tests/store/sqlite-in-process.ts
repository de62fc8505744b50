/** The store on SQLite without its threads, so that a test can stand between it and each of its statements. */
import { debiting, Leases } from '../../src/store/leases.ts';
import type { AccountLedger } from '../../src/store/ledger.ts';
import { usageValues } from '../../src/store/reports/usage-columns.ts';
import { forwardedRepositories } from '../../src/store/repositories/forwarded.ts';
import { repositoriesOn } from '../../src/store/repositories/repositories.ts';
import { openConnection, sqliteCode, type Connection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import type { LedgerBatch, LedgerOperation } from '../../src/store/sqlite/ledger-batch.ts';
import { LedgerWriter } from '../../src/store/sqlite/ledger-writer.ts';
import { fromFailure, StoreError, storeErrorFrom, toFailure } from '../../src/store/store-error.ts';
import type { MemoryBalances } from './fixture.ts';
import type { StoryStore } from './stage.ts';

/** `met` stands between the store and each of its connections. `onFatal`: the ledger's thread would have died. */
export function openInProcess(
  file: string,
  free: MemoryBalances,
  { met = (connection: Connection): Connection => connection, onFatal = (): void => {} } = {},
) {
  const connections = [met(openConnection(file)), met(openConnection(file))] as const;
  const [ofLedger, ofQueries] = connections;
  const store: StoryStore = { ledger: ledgerOn(ofLedger, free, onFatal), repositories: repositoriesOf(ofQueries) };
  return { store, db: kyselyOn(ofQueries), close: () => connections.forEach((one) => one.isOpen && one.close()) };
}

/** Each call is a batch of its own, and what arrives in one turn. */
function ledgerOn(connection: Connection, free: MemoryBalances, onFatal: () => void): AccountLedger {
  const writer = new LedgerWriter(connection);
  writer.recover(Date.now());
  const opens: LedgerBatch['opens'][number][] = [];
  const write = (batch: Partial<LedgerBatch>) => {
    const whole = { ids: new Uint8Array(0), rows: [], operations: [], opens: opens.splice(0), ...batch };
    try {
      const reply = writer.write(whole);
      if (reply.refused === undefined) return reply;
      opens.push(...whole.opens);
      throw fromFailure(reply.refused);
    } catch (error) {
      if (!(error instanceof StoreError)) onFatal();
      throw storeErrorFrom(error);
    }
  };
  const operate = async (operation: LedgerOperation): Promise<never> => {
    await Promise.resolve();
    const result = write({ operations: [operation] }).results[0]!;
    if ('failure' in result) throw fromFailure(result.failure);
    return result.value as never;
  };
  const leases = new Leases({
    ...{ free, alone: true },
    leaseServer: {
      grant: (request) => operate({ kind: 'grant', request }),
      returnUnused: (balanceId, microcents) => operate({ kind: 'return', balanceId, microcents }),
      callOthers: () => Promise.resolve(),
    },
  });
  const changing = (accountIds: readonly string[], operation: LedgerOperation) =>
    debiting(
      () => leases.changing(accountIds, () => operate(operation)),
      () => Promise.resolve(),
    );
  return {
    ...{ leases, replicaId: new Uint8Array(16), backlog: 0, silentMs: 0 },
    settle: async (row) => {
      await Promise.resolve();
      const [failed] = write({ ids: row.requestId, rows: [usageValues(row)] }).failures;
      if (failed !== undefined) throw fromFailure(failed[1]);
      return 'billed';
    },
    readBack: (requestId) => operate({ kind: 'read_back', requestId }),
    probe: () => operate({ kind: 'probe' }),
    open: (request) => void opens.push(request),
    transfer: (transfer) => changing([transfer.debitAccount, transfer.creditAccount], { kind: 'transfer', transfer }),
    reverse: (request) => changing([request.accountId], { kind: 'reverse', request }),
    reinstate: (request) => changing([request.accountId], { kind: 'reinstate', request }),
    createAccount: (account) => operate({ kind: 'create_account', account }),
    setAccountStatus: (accountId, status, at, changeId) =>
      operate({ kind: 'account_status', accountId, status, at, changeId }),
    setCreditLimit: (accountId, toMicrocents, at, changeId) =>
      changing([accountId], { kind: 'credit_limit', accountId, toMicrocents, at, changeId }),
    setBudget: (change) =>
      leases.changing(leases.ofBudget(change.subject), () => operate({ kind: 'budget', change })) as Promise<void>,
    close: () => leases.close(),
  };
}

/** As the thread of queries answers (query-worker.ts). */
function repositoriesOf(connection: Connection) {
  const own = repositoriesOn(kyselyOn(connection));
  const codes: Readonly<Record<number, StoreError['code']>> = { 5: 'busy', 13: 'full', 19: 'conflict' };
  return forwardedRepositories(async (name, request) => {
    try {
      return (await (own[name] as (request: unknown) => Promise<unknown>)(request)) as never;
    } catch (error) {
      if (error instanceof StoreError) throw error;
      throw new StoreError(codes[sqliteCode(error)] ?? 'failed', toFailure(error).message, error);
    }
  });
}
