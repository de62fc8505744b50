import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { isOfBudget, readBalanceId } from '../budget.ts';
import * as steps from '../ledger-steps.ts';
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
import type {
  LedgerBatch,
  LedgerOperation,
  LedgerReply,
  ListedRequest,
  OperationAnswers,
  OperationResult,
} from './ledger-batch.ts';

/** A few hundred settlements. */
const roomBytesMin = 262_144n;

/**
 * Writes batches, each in one transaction. Statements are prepared once: Kysely would cost three to five times as much
 * CPU for each of them (money, "Query layer").
 */
export class LedgerWriter {
  readonly #connection: Connection;
  readonly #statements: ReturnType<typeof prepare>;
  /** Balances that this process holds whole in memory. Bounded by the number of accounts and of budgets. */
  readonly #handedOut = new Set<string>();
  /** Requests listed as open, which only this connection lists. Most requests end before they are, and need no delete. */
  readonly #listed = new Set<string>();
  /** Those of them that the running transaction takes from the list: they leave the set when it is durable. */
  #unlisted: string[] = [];
  /** Of the steps of operations, by their text. */
  readonly #prepared = new Map<string, ReturnType<Connection['prepare']>>();

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#statements = prepare(connection);
    for (const { request_id: id } of this.#statements.openRequests.all() as readonly OpenRow[])
      this.#listed.add(nameOf(id));
  }

  /**
   * Crash recovery: each request that was running when the last process died becomes a usage row that costs nothing (M8). Its
   * holds were in memory and are gone with it.
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

  /** Returns the outcome of the batch. Throws when the disk or the file is broken: nothing can be acknowledged any more. */
  write(batch: LedgerBatch): LedgerReply {
    try {
      return this.#transaction(batch, false);
    } catch (error) {
      const failure = this.#undo(error);
      if (failure.code === 'busy' || failure.code === 'full') return refusal(failure);
    }
    // One bad row must not fail its neighbours: again, each row on its own, still in one transaction and one fsync.
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
    const handedOut: string[] = [];
    const credits: (readonly [string, bigint])[] = [];
    begin.run();
    this.#unlisted = [];
    for (const open of batch.opens) this.#open(open);
    const again: number[] = [];
    const failures = apart ? this.#settleApart(batch, again) : this.#settleTogether(batch, again);
    const results = batch.operations.map((operation) => this.#operate(operation, handedOut, credits));
    this.#commit();
    // Only what is durable counts: a lease of a transaction that failed was never handed out.
    for (const balanceId of handedOut) this.#handedOut.add(balanceId);
    return { failures, again, results, credits };
  }

  /** Insert all, debit each balance once by the sum of the rows really inserted (M3). */
  #settleTogether(batch: LedgerBatch, again: number[]): LedgerReply['failures'] {
    const costs = new Map<string, bigint>();
    const add = (balanceId: string, cost: bigint): unknown => costs.set(balanceId, (costs.get(balanceId) ?? 0n) + cost);
    for (let index = 0; index < batch.rows.length; index++) {
      const row = batch.rows[index]!;
      if (!this.#insertUsage(batch.ids.subarray(index * 16, index * 16 + 16), row)) {
        again.push(index);
        continue;
      }
      const cost = row[costColumn] as bigint;
      add(row[accountColumn] as string, cost);
      for (const balanceId of balancesOf(row)) add(balanceId, cost);
    }
    for (const [balanceId, cost] of costs) this.#debit(balanceId, cost);
    return [];
  }

  #settleApart(batch: LedgerBatch, again: number[]): LedgerReply['failures'] {
    const failures: (readonly [number, StoreFailure])[] = [];
    for (let index = 0; index < batch.rows.length; index++) {
      const row = batch.rows[index]!;
      const failure = this.#savepoint(() => {
        if (!this.#insertUsage(batch.ids.subarray(index * 16, index * 16 + 16), row)) {
          again.push(index);
          return;
        }
        for (const balanceId of [row[accountColumn] as string, ...balancesOf(row)])
          this.#debit(balanceId, row[costColumn] as bigint);
      });
      if (failure !== undefined) failures.push([index, failure]);
    }
    return failures;
  }

  /** Whether the row is new. A request that was listed as open is open no longer, either way. */
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

  /** A list for crash recovery, so a bad entry is dropped rather than allowed to fail a settlement. */
  #open(open: ListedRequest): void {
    this.#savepoint(() => {
      const listed = this.#statements.insertOpen.run(
        open.requestId,
        open.accountId,
        open.keyId,
        clean(open.modelId),
        open.holdMicrocents,
        open.startedAt,
        open.replicaId,
        open.requestId,
      );
      if (changedBy(listed) === 1) this.#listed.add(nameOf(open.requestId));
    });
  }

  #operate(operation: LedgerOperation, handedOut: string[], credits: (readonly [string, bigint])[]): OperationResult {
    const inMemory = (balanceId: string): boolean => this.#handedOut.has(balanceId) || handedOut.includes(balanceId);
    let value: OperationAnswers[keyof OperationAnswers];
    const failure = this.#savepoint(() => {
      switch (operation.kind) {
        case 'lease':
          value = this.#lease(operation.balanceId, handedOut);
          return;
        case 'release':
          this.#handedOut.delete(operation.balanceId);
          return;
        case 'budget':
          for (const gain of this.#run(steps.setBudget(operation.change))) if (inMemory(gain[0])) credits.push(gain);
          return;
        case 'transfer': {
          const { debitAccount, creditAccount, amountMicrocents } = operation.transfer;
          // Part of such a balance may be held by running requests; only the memory's owner can say what is free.
          const mayDebit = operation.reserved || !inMemory(debitAccount);
          value = this.#run(steps.transfer(operation.transfer, { mayDebit }));
          if (value && inMemory(creditAccount)) credits.push([creditAccount, amountMicrocents]);
          return;
        }
        case 'create_account':
          this.#run(steps.createAccount(operation.account));
          return;
        case 'account_status':
          this.#run(steps.setAccountStatus(operation.accountId, operation.status, operation.at, operation.changeId));
          return;
        case 'read_limit':
          value = this.#readLimit(operation.accountId);
          return;
        case 'probe':
          this.#probe();
          return;
        case 'replica_begins':
          this.#statements.insertReplica.run(operation.replicaId, operation.at);
          return;
        case 'replica_ended': {
          const { openRequestsOf, deleteReplica } = this.#statements;
          value = this.#crashed(openRequestsOf.all(operation.replicaId) as readonly OpenRow[], operation.at);
          deleteReplica.run(operation.replicaId);
          return;
        }
        case 'credit_limit': {
          const { accountId, fromMicrocents, toMicrocents, reserved, at, changeId } = operation;
          if (this.#readLimit(accountId) !== fromMicrocents)
            throw new StoreError('conflict', `the credit limit of ${accountId} has changed meanwhile`);
          const gained = toMicrocents - fromMicrocents;
          const mayDebit = gained >= 0n || reserved || !inMemory(accountId);
          this.#run(steps.setCreditLimit(accountId, toMicrocents, { at, changeId, mayDebit }));
          if (gained > 0n && inMemory(accountId)) credits.push([accountId, gained]);
          return;
        }
        case 'read_back': {
          const row = this.#statements.readUsage.get(operation.requestId) as UsageOutcome | undefined;
          value = row === undefined ? undefined : { costMicrocents: row.cost, ending: row.ending };
          return;
        }
      }
    });
    return failure === undefined ? { value } : { failure };
  }

  #lease(balanceId: string, handedOut: string[]): bigint {
    if (this.#handedOut.has(balanceId) || handedOut.includes(balanceId)) return 0n;
    const { readSpendable } = this.#statements;
    const spendable = isOfBudget(balanceId)
      ? this.#openBalance(balanceId)
      : (readSpendable.get(balanceId) as { readonly spendable: bigint } | undefined)?.spendable;
    if (spendable === undefined) return 0n;
    handedOut.push(balanceId);
    return spendable;
  }

  /** What a budget has left for a period; the first call begins it. */
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
   * Writes pages as a settlement does. A write may find room in the log that an earlier one left there, so the disk must have
   * some as well: otherwise the next settlement is the one that fails.
   */
  #probe(): void {
    this.#statements.touch.run();
    const file = this.#connection.location();
    if (file === null) return;
    const { bavail, bsize } = statfsSync(dirname(file), { bigint: true });
    if (bavail * bsize < roomBytesMin) throw new StoreError('full', 'database or disk is full');
  }

  #readLimit(accountId: string): bigint {
    const row = this.#statements.readLimit.get(accountId) as { readonly credit_limit: bigint } | undefined;
    if (row === undefined) throw steps.noAccount(accountId);
    return row.credit_limit;
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
      // What the step took from the list is on it again.
      this.#unlisted.length = unlisted;
      return failure;
    }
  }

  #undo(error: unknown): StoreFailure {
    const failure = failureOf(error);
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
      `insert into open_request (request_id, account_id, key_id, model_id, hold, started_at, replica_id)
       select ?, ?, ?, ?, ?, ?, ? where not exists (select 1 from usage where request_id = ?) on conflict (request_id) do nothing`,
    ),
    deleteOpen: connection.prepare('delete from open_request where request_id = ?'),
    openRequests: connection.prepare(
      'select request_id, account_id, key_id, model_id, hold, started_at from open_request',
    ),
    openRequestsOf: connection.prepare(
      'select request_id, account_id, key_id, model_id, hold, started_at from open_request where replica_id = ?',
    ),
    insertReplica: connection.prepare('insert into replica (id, heartbeat_at) values (?, ?)'),
    deleteReplica: connection.prepare('delete from replica where id = ?'),
    forgetReplicas: connection.prepare('delete from replica'),
    readSpendable: connection.prepare(
      `select available + credit_limit as spendable from account where id = ? and kind = 0 and status = 'active'`,
    ),
    readBalance: connection.prepare('select available from budget_balance where id = ?'),
    beginBalance: connection.prepare(
      `insert into budget_balance (id, subject, per, starts_at, ends_at, amount, spent_before, available)
       select ?, subject, per, ?, ?, amount, 0, amount from budget where subject = ? and per = ?`,
    ),
    touch: connection.prepare('update account set version = version where kind <> 0'),
    readLimit: connection.prepare('select credit_limit from account where id = ? and kind = 0'),
  };
}

/** 16 bytes as the key of a set. */
const nameOf = (id: Uint8Array): string => Buffer.from(id.buffer, id.byteOffset, id.byteLength).toString('latin1');

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
  return { refused: failure, failures: [], again: [], results: [], credits: [] };
}

/**
 * What an error of a statement means. An error that is neither a fault of the row nor a lock nor a full disk is rethrown: after a
 * failed fsync the content of the file is unknown, so the process must end and recover (reliability S12).
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
