import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { isOfBudget, readBalanceId } from '../budget.ts';
import * as steps from '../ledger-steps.ts';
import { reinstate, reverse } from '../return-steps.ts';
import { StoreError, toFailure, type StoreFailure } from '../store-error.ts';
import { publicIdOf } from '../../platform/ids/uuid.ts';
import { closeConnection, sqliteCode, type Connection } from './connection.ts';
import {
  accountColumn,
  clean,
  costColumn,
  balancesOf,
  usageColumns,
  usageValues,
  type SqlValue,
} from '../reports/usage-columns.ts';
import type { Granted } from '../leases.ts';
import type { OpenRequest } from '../ledger.ts';
import {
  nameOf,
  type LedgerBatch,
  type LedgerOperation,
  type LedgerReply,
  type OperationAnswers,
  type OperationResult,
} from './ledger-batch.ts';
import { LeaseTable } from './lease-table.ts';

/** Space for a few hundred settlements. */
const roomBytesMin = 262_144n;

/**
 * Writes batches, each in one transaction. Statements are prepared once: Kysely would cost three to five times as much CPU for each of them
 * (money, "Query layer").
 */
export class LedgerWriter {
  readonly #connection: Connection;
  readonly #statements: ReturnType<typeof prepare>;
  readonly #leases = new LeaseTable();
  /** Requests listed as open, which only this connection lists. Most requests end before they are listed, and need no delete. */
  readonly #listed = new Set<string>();
  /** Those that the running transaction removes from the list: they leave the set when it is durable. */
  #unlisted: string[] = [];
  /** Prepared statements of operation steps, by their text. */
  readonly #prepared = new Map<string, ReturnType<Connection['prepare']>>();

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#statements = prepare(connection);
    for (const { request_id: id } of this.#statements.openRequests.all() as readonly OpenRow[])
      this.#listed.add(nameOf(id));
  }

  /**
   * Crash recovery: each request that was running when the last process died becomes a usage row that costs nothing (M8). Its holds were in
   * memory and are gone with the process.
   */
  recover(now: number): number {
    const { begin, openRequests, forgetReplicas } = this.#statements;
    begin.run();
    const recovered = this.#crashed(openRequests.all() as readonly OpenRow[], now);
    forgetReplicas.run();
    this.#commit();
    return recovered;
  }

  #commit(): void {
    this.#statements.commit.run();
    for (const id of this.#unlisted) this.#listed.delete(id);
    this.#unlisted = [];
    this.#leases.commit();
  }

  #crashed(rows: readonly OpenRow[], now: number): number {
    const { insertUsage, deleteOpen } = this.#statements;
    let recovered = 0;
    for (const row of rows) {
      recovered += changedBy(insertUsage.run(row.request_id, ...crashedUsage(row, now)));
      deleteOpen.run(row.request_id);
      this.#unlisted.push(nameOf(row.request_id));
    }
    return recovered;
  }

  /** Returns the outcome of the batch. Throws if the disk or the file is broken: nothing can be acknowledged any more. */
  write(batch: LedgerBatch): LedgerReply {
    try {
      return this.#transaction(batch, false);
    } catch (error) {
      const failure = this.#undo(error);
      if (failure.code === 'busy' || failure.code === 'full') return refusal(failure);
    }
    // One bad row must not fail the others: retry with each row separately, still in one transaction and one fsync.
    try {
      return this.#transaction(batch, true);
    } catch (error) {
      return refusal(this.#undo(error));
    }
  }

  close(): void {
    closeConnection(this.#connection);
  }

  #transaction(batch: LedgerBatch, apart: boolean): LedgerReply {
    const { begin } = this.#statements;
    begin.run();
    this.#unlisted = [];
    for (const open of batch.opens) this.#open(open);
    const failures = apart ? this.#settleApart(batch) : this.#settleTogether(batch);
    const results = batch.operations.map((operation) => this.#operate(operation));
    this.#commit();
    return { failures, results };
  }

  /** Inserts all rows, and debits each balance once by the sum of the rows actually inserted (M3). */
  #settleTogether(batch: LedgerBatch): LedgerReply['failures'] {
    const costs = new Map<string, bigint>();
    for (let index = 0; index < batch.rows.length; index++) {
      for (const balanceId of this.#chargeRow(batch, index))
        costs.set(balanceId, (costs.get(balanceId) ?? 0n) + (batch.rows[index]![costColumn] as bigint));
    }
    for (const [balanceId, cost] of costs) this.#debit(balanceId, cost);
    return [];
  }

  #settleApart(batch: LedgerBatch): LedgerReply['failures'] {
    const failures: (readonly [number, StoreFailure])[] = [];
    for (let index = 0; index < batch.rows.length; index++) {
      const failure = this.#savepoint(() => {
        for (const balanceId of this.#chargeRow(batch, index))
          this.#debit(balanceId, batch.rows[index]![costColumn] as bigint);
      });
      if (failure !== undefined) failures.push([index, failure]);
    }
    return failures;
  }

  /** Inserts a row and takes its cost from the leases; returns the balances that are still to be debited. */
  #chargeRow({ ids, rows }: LedgerBatch, index: number): readonly string[] {
    const requestId = ids.subarray(index * 16, index * 16 + 16);
    const row = rows[index]!;
    if (!this.#insertUsage(requestId, row)) return [];
    const balanceIds = [row[accountColumn] as string, ...balancesOf(row)];
    for (const id of balanceIds) this.#leases.spend(id, row[costColumn] as bigint);
    return balanceIds;
  }

  /** Returns whether the row is new. Either way, a request that was listed as open no longer is. */
  #insertUsage(requestId: Uint8Array, row: readonly SqlValue[]): boolean {
    const { insertUsage, deleteOpen } = this.#statements;
    const inserted = changedBy(insertUsage.run(requestId, ...row));
    if (this.#listed.size > 0 && this.#listed.has(nameOf(requestId))) {
      deleteOpen.run(requestId);
      this.#unlisted.push(nameOf(requestId));
    }
    return inserted === 1;
  }

  #debit(balanceId: string, cost: bigint): void {
    if (typeof cost !== 'bigint') throw new StoreError('invalid', 'a cost is not a bigint');
    const { debit, debitBalance } = this.#statements;
    if (changedBy((isOfBudget(balanceId) ? debitBalance : debit).run(cost, balanceId)) === 1) return;
    // A row without a cost may belong to a budget that was removed before anything was held from it.
    if (isOfBudget(balanceId) && cost === 0n) return;
    throw new StoreError('invalid', `usage of an account or a budget that does not exist: ${balanceId}`);
  }

  /** The list is for crash recovery, so a bad entry is dropped rather than allowed to fail a settlement. */
  #open(open: OpenRequest): void {
    this.#savepoint(() => {
      const listed = this.#statements.insertOpen.run(
        open.requestId,
        open.accountId,
        open.keyId,
        clean(open.modelId),
        open.holdMicrocents,
        open.startedAt,
        open.requestId,
      );
      if (changedBy(listed) === 1) this.#listed.add(nameOf(open.requestId));
    });
  }

  #operate(operation: LedgerOperation): OperationResult {
    let value: OperationAnswers[keyof OperationAnswers];
    const failure = this.#savepoint(() => {
      switch (operation.kind) {
        case 'grant':
          value = this.#grant(operation.request.balanceId);
          return;
        case 'return':
          this.#leases.returned(operation.balanceId, operation.microcents);
          return;
        case 'budget':
          this.#run(steps.setBudget(operation.change));
          return;
        case 'transfer': {
          const { transfer } = operation;
          value = this.#run(steps.transfer(transfer, this.#leases.of(transfer.debitAccount) ?? 0n));
          return;
        }
        case 'reverse': {
          const { request } = operation;
          value = this.#run(reverse(request, this.#leases.of(request.accountId) ?? 0n));
          return;
        }
        case 'reinstate':
          value = this.#run(reinstate(operation.request));
          return;
        case 'create_account':
          this.#run(steps.createAccount(operation.account));
          return;
        case 'account_status':
          this.#run(steps.setAccountStatus(operation.accountId, operation.status, operation.at, operation.changeId));
          return;
        case 'probe':
          this.#probe();
          return;
        case 'credit_limit': {
          const { accountId, toMicrocents, at, changeId } = operation;
          const leasedMicrocents = this.#leases.of(accountId) ?? 0n;
          this.#run(steps.setCreditLimit(accountId, toMicrocents, { at, changeId, leasedMicrocents }));
          return;
        }
        case 'read_back':
          value = this.#readBack(operation.requestId);
          return;
      }
    });
    return failure === undefined ? { value } : { failure };
  }

  #readBack(requestId: Uint8Array): OperationAnswers['read_back'] {
    const row = this.#statements.readUsage.get(requestId) as UsageOutcome | undefined;
    return row === undefined ? undefined : { costMicrocents: row.cost, ending: row.ending };
  }

  /**
   * Leases all of the balance that is not leased yet, because only this process has requests; negative if a budget was lowered below what
   * requests hold.
   */
  #grant(balanceId: string): Granted {
    const spendable = this.#spendable(balanceId);
    if (spendable === undefined) return { leased: 0n, isElsewhere: false, isThere: false };
    const leased = spendable - (this.#leases.of(balanceId) ?? 0n);
    this.#leases.grant(balanceId, leased);
    return { leased, isElsewhere: false, isThere: true };
  }

  /** The spendable credit of an active account, or amount of a budget. */
  #spendable(balanceId: string): bigint | undefined {
    if (isOfBudget(balanceId)) return this.#openBalance(balanceId);
    const row = this.#statements.readSpendable.get(balanceId) as { readonly spendable: bigint } | undefined;
    return row?.spendable;
  }

  /** What a budget has left for a period; the first call creates the balance. */
  #openBalance(balanceId: string): bigint | undefined {
    const { readBalance, beginBalance } = this.#statements;
    const read = (): bigint | undefined =>
      (readBalance.get(balanceId) as { readonly available: bigint } | undefined)?.available;
    const known = read();
    if (known !== undefined) return known;
    const { subject, per, startsAt, endsAt } = readBalanceId(balanceId);
    beginBalance.run(balanceId, startsAt, endsAt, subject, per);
    return read();
  }

  /**
   * Writes pages as a settlement does. A write may reuse space in the log left by an earlier one, so the disk must have free space as well:
   * otherwise the next settlement would be the one that fails.
   */
  #probe(): void {
    this.#statements.touch.run();
    const file = this.#connection.location();
    if (file === null) return;
    const { bavail, bsize } = statfsSync(dirname(file), { bigint: true });
    if (bavail * bsize < roomBytesMin) throw new StoreError('full', 'database or disk is full');
  }

  #run<Value>(all: steps.Steps<Value>): Value {
    let next = all.next();
    while (next.done !== true) next = all.next(this.#step(next.value));
    return next.value;
  }

  #step({ text, values }: steps.Step): steps.StepResult {
    let statement = this.#prepared.get(text);
    if (statement === undefined) this.#prepared.set(text, (statement = this.#connection.prepare(text)));
    if (!text.startsWith('select')) return { rows: [], count: changedBy(statement.run(...values)) };
    const rows = statement.all(...values) as readonly object[];
    return { rows, count: rows.length };
  }

  /** Runs one step so that its failure undoes only that step. Failures of the disk or a lock end the whole transaction. */
  #savepoint(step: () => void): StoreFailure | undefined {
    const { savepoint, release, rollbackTo } = this.#statements;
    const unlisted = this.#unlisted.length;
    const leases = this.#leases.mark;
    savepoint.run();
    try {
      step();
      release.run();
      return undefined;
    } catch (error) {
      const failure = failureOf(error);
      if (!this.#connection.isTransaction || failure.code === 'busy' || failure.code === 'full') throw error;
      rollbackTo.run();
      release.run();
      // What the step removed from the list is listed again.
      this.#unlisted.length = unlisted;
      this.#leases.rollback(leases);
      return failure;
    }
  }

  #undo(error: unknown): StoreFailure {
    const failure = failureOf(error);
    this.#leases.rollback(0);
    if (this.#connection.isTransaction) this.#statements.rollback.run(); // SQLite does it itself when the disk is full
    return failure;
  }
}

interface OpenRow {
  readonly request_id: Uint8Array;
  readonly account_id: string;
  readonly key_id: string;
  readonly model_id: string;
  readonly hold: bigint;
  readonly started_at: bigint;
}

type UsageOutcome = { readonly cost: bigint; readonly ending: NonNullable<OperationAnswers['read_back']>['ending'] };

function prepare(connection: Connection) {
  const usage = ['request_id', ...usageColumns];
  return {
    begin: connection.prepare('begin immediate'),
    commit: connection.prepare('commit'),
    rollback: connection.prepare('rollback'),
    savepoint: connection.prepare('savepoint step'),
    release: connection.prepare('release step'),
    rollbackTo: connection.prepare('rollback to step'),
    insertUsage: connection.prepare(
      `insert into usage (${usage.join(', ')}) values (${usage.map(() => '?').join(', ')}) on conflict (request_id) do nothing`,
    ),
    readUsage: connection.prepare('select cost, ending from usage where request_id = ?'),
    debit: connection.prepare('update account set available = available - ? where id = ?'),
    debitBalance: connection.prepare('update budget_balance set available = available - ? where id = ?'),
    // A late entry of a settled request must not come back as crashed.
    insertOpen: connection.prepare(
      `insert into open_request (request_id, account_id, key_id, model_id, hold, started_at)
       select ?, ?, ?, ?, ?, ? where not exists (select 1 from usage where request_id = ?) on conflict (request_id) do nothing`,
    ),
    deleteOpen: connection.prepare('delete from open_request where request_id = ?'),
    openRequests: connection.prepare(
      'select request_id, account_id, key_id, model_id, hold, started_at from open_request',
    ),
    forgetReplicas: connection.prepare('delete from replica'),
    readSpendable: connection.prepare(
      `select available + credit_limit - owed as spendable from account where id = ? and kind = 0 and status = 'active'`,
    ),
    readBalance: connection.prepare('select available from budget_balance where id = ?'),
    beginBalance: connection.prepare(
      `insert into budget_balance (id, subject, per, starts_at, ends_at, amount, spent_before, available)
       select ?, subject, per, ?, ?, amount, 0, amount from budget where subject = ? and per = ?`,
    ),
    touch: connection.prepare('update account set version = version where kind <> 0'),
  };
}

/** Rows changed by a statement. The binding's types promise a number; with `readBigInts` it is a bigint. */
function changedBy(result: { readonly changes: number | bigint }): number {
  return Number(result.changes);
}

function crashedUsage(row: OpenRow, now: number): SqlValue[] {
  const startedAt = Number(row.started_at);
  const endedAt = Math.max(now, startedAt); // the clock may have been set back since
  return usageValues({
    requestId: row.request_id,
    publicId: publicIdOf(row.request_id),
    clientId: null,
    accountId: row.account_id,
    keyId: row.key_id,
    modelId: row.model_id,
    api: 'unknown',
    streamed: false,
    startedAt,
    endedAt,
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
    costMicrocents: 0n,
    unchargedMicrocents: row.hold,
    holdMicrocents: row.hold,
    ending: 'crashed',
    finish: null,
    errorCode: null,
    counted: false,
    inputPrice: 0n,
    outputPrice: 0n,
    cacheReadPrice: 0n,
    backend: null,
    firstTokenMs: null,
    totalMs: endedAt - startedAt,
    tags: null,
    plan: null,
    keyBudget: null,
    accountBudget: null,
  });
}

function refusal(failure: StoreFailure): LedgerReply {
  return { refused: failure, failures: [], results: [] };
}

/**
 * The meaning of a statement's error. An error that is not caused by the row, a lock or a full disk is rethrown: after a failed fsync the
 * content of the file is unknown, so the process must end and recover (reliability S12).
 */
function failureOf(error: unknown): StoreFailure {
  if (error instanceof StoreError) return toFailure(error);
  const message = error instanceof Error ? error.message : String(error);
  if (isBindingError(error)) return { code: 'invalid', message };
  switch (sqliteCode(error)) {
    case 5: // SQLITE_BUSY
      return { code: 'busy', message };
    case 13: // SQLITE_FULL
      return { code: 'full', message };
    case 18: // SQLITE_TOOBIG
    case 20: // SQLITE_MISMATCH
      return { code: 'invalid', message };
    case 19: // SQLITE_CONSTRAINT
      return { code: constraintCode(error), message };
  }
  throw error;
}

function constraintCode(error: unknown): StoreFailure['code'] {
  switch ((error as { readonly errcode: number }).errcode) {
    case 1555: // SQLITE_CONSTRAINT_PRIMARYKEY
    case 2067: // SQLITE_CONSTRAINT_UNIQUE
      return 'conflict';
    case 787: // SQLITE_CONSTRAINT_FOREIGNKEY
      return 'not_found';
  }
  return 'invalid';
}

/** A value that SQLite cannot store, such as a bigint beyond 64 bits. */
function isBindingError(error: unknown): boolean {
  if (!(error instanceof Error) || !('code' in error)) return false;
  return error.code === 'ERR_INVALID_ARG_TYPE' || error.code === 'ERR_INVALID_ARG_VALUE';
}
