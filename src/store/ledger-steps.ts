/**
 * Changes of balances other than settlements and leases, shared by both stores. Each operation is a generator of statements, to which the
 * result of each one is sent. All of its statements run in one transaction, sequentially: synchronously on SQLite, with a wait for each on
 * PostgreSQL. An error rolls them back. Locks that PostgreSQL needs are taken before.
 */
import { dollars } from '../platform/dollars.ts';
import { balanceAt, readMemberSubject, readModelSubject } from './budget.ts';
import type { AccountStatus, ChangeKind } from './database.ts';
import type { BudgetChange, NewAccount, Transfer } from './ledger.ts';
import { notRecorded, recordings, type Recording } from './recordings.ts';
import { clean } from './reports/usage-columns.ts';
import { StoreError } from './store-error.ts';

/** One statement, with question marks for its values. */
export interface Step {
  readonly text: string;
  readonly values: readonly (string | number | bigint | Uint8Array | null)[];
}

export interface StepResult {
  readonly rows: readonly object[];
  /** Rows found or changed. */
  readonly count: number;
}

export type Steps<Value> = Generator<Step, Value, StepResult>;

export const step = (text: string, ...values: Step['values']): Step => ({ text, values });

/** Other processes learn of it within a second. */
const recordChange = (id: Uint8Array, at: number, kind: ChangeKind, ref: string): Step =>
  step('insert into change (id, at, kind, ref) values (?, ?, ?, ?)', id, at, kind, ref);

/**
 * Returns whether money moved: false if the idempotency key has already moved it. Running requests may hold the leased part of the debited
 * account; `leasedMicrocents` is the part that its row still includes: 0n on PostgreSQL, whose leases are rows.
 */
export function* transfer(transfer: Transfer, leasedMicrocents: bigint): Steps<boolean> {
  const { id, debitAccount, creditAccount, amountMicrocents: amount, kind, idempotencyKey, reference, at } = transfer;
  const known = yield step(
    'select debit_account, credit_account, amount, kind from transfer where idempotency_key = ?',
    idempotencyKey,
  );
  const [earlier] = known.rows as readonly TransferRow[];
  if (earlier !== undefined) {
    if (isSameMovement(earlier, transfer)) return false;
    throw new StoreError('conflict', `the idempotency key ${idempotencyKey} stands for another transfer`);
  }
  yield step(
    `insert into transfer (id, debit_account, credit_account, amount, kind, idempotency_key, reference, "by", at)
     values (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ...[id, debitAccount, creditAccount, amount, kind, idempotencyKey],
    ...[reference === null ? null : clean(reference), clean(transfer.by), at],
  );
  const debited = yield step(
    'update account set available = available - ? where id = ? and (kind <> 0 or available + credit_limit >= ?)',
    ...[amount, debitAccount, amount + leasedMicrocents],
  );
  if (debited.count === 0)
    throw new StoreError('insufficient', `the free balance of ${debitAccount} does not cover ${dollars(amount)}`);
  yield step('update account set available = available + ? where id = ?', amount, creditAccount);
  yield* writeRecording(transfer.recording);
  return true;
}

interface TransferRow {
  readonly debit_account: string;
  readonly credit_account: string;
  readonly amount: bigint;
  readonly kind: string;
}

/** Compares the parties and the amount; the author and the time may differ between two tries of one movement. */
const isSameMovement = (row: TransferRow, transfer: Transfer): boolean =>
  row.debit_account === transfer.debitAccount &&
  row.credit_account === transfer.creditAccount &&
  row.amount === transfer.amountMicrocents &&
  row.kind === transfer.kind;

/** Writes what accompanies a change. Throws `conflict` if it does not fit the existing rows. */
export function* writeRecording(recording: readonly Recording[] = []): Steps<void> {
  for (const { name, values } of recording) {
    const { count } = yield step(recordings[name], ...values);
    if (count !== 1) throw notRecorded(name);
  }
}

export function* createAccount(account: NewAccount): Steps<void> {
  const { id, name, creditLimitMicrocents, at, changeId, recording } = account;
  yield step(
    `insert into account (id, kind, name, status, available, credit_limit, version, created_at)
     values (?, 0, ?, 'active', 0, ?, 1, ?)`,
    ...[id, clean(name), creditLimitMicrocents, at],
  );
  yield* writeRecording(recording);
  yield recordChange(changeId, at, 'account_created', id);
}

export function* setAccountStatus(
  accountId: string,
  status: AccountStatus,
  at: number,
  changeId: Uint8Array,
): Steps<void> {
  const { count } = yield step(
    'update account set status = ?, version = version + 1 where id = ? and kind = 0',
    ...[status, accountId],
  );
  if (count === 0) throw noAccount(accountId);
  yield recordChange(changeId, at, 'account_status', accountId);
}

const noAccount = (accountId: string): StoreError => new StoreError('not_found', `there is no account ${accountId}`);

/** `leasedMicrocents` as for a transfer. */
export function* setCreditLimit(
  accountId: string,
  toMicrocents: bigint,
  {
    at,
    changeId,
    leasedMicrocents,
  }: { readonly at: number; readonly changeId: Uint8Array; readonly leasedMicrocents: bigint },
): Steps<void> {
  const found = yield step('select 1 from account where id = ? and kind = 0', accountId);
  if (found.count === 0) throw noAccount(accountId);
  const { count } = yield step(
    'update account set credit_limit = ?, version = version + 1 where id = ? and kind = 0 and available + ? >= ?',
    ...[toMicrocents, accountId, toMicrocents, leasedMicrocents],
  );
  if (count === 0)
    throw new StoreError('insufficient', `${accountId} is using the credit limit that would be taken away`);
  yield recordChange(changeId, at, 'account_limit', accountId);
}

/**
 * Sets the budget, and its balances for this and later periods. The budget's row comes first: beginning a balance reads it, on PostgreSQL
 * under a lock, so that every balance is either changed here or made from the new budget.
 */
export function* setBudget(change: BudgetChange): Steps<void> {
  const { kind, subject, budget, spentBeforeMicrocents, at, changeId } = change;
  const ofModel = readModelSubject(subject);
  if ((yield liveSubject[kind](ofModel?.ownerId ?? subject)).count === 0)
    throw new StoreError('not_found', `there is no ${kind.slice(0, -'_budget'.length)} ${subject}`);
  yield recordChange(changeId, at, kind, subject);
  if (budget === null) {
    yield step('delete from budget where subject = ?', subject);
    return;
  }
  const { amountMicrocents: amount, per } = budget;
  yield step(
    `insert into budget (subject, amount, per, set_at, owner, model_id) values (?, ?, ?, ?, ?, ?)
     on conflict (subject) do update set amount = excluded.amount, per = excluded.per, set_at = excluded.set_at`,
    ...[subject, amount, per, at, ofModel?.ownerId ?? null, ofModel?.modelId ?? null],
  );
  const { id, startsAt, endsAt } = balanceAt(subject, per, at);
  yield step(
    `insert into budget_balance (id, subject, per, starts_at, ends_at, amount, spent_before, available)
     values (?, ?, ?, ?, ?, ?, 0, ?) on conflict (id) do nothing`,
    ...[id, subject, per, startsAt, endsAt, amount, amount],
  );
  const { rows } = yield step(
    `select id, amount, spent_before from budget_balance
     where subject = ? and per = ? and (ends_at is null or ends_at > ?) order by id`,
    ...[subject, per, at],
  );
  for (const balance of rows as readonly BalanceRow[]) {
    const before = balance.id === id ? spentBeforeMicrocents : balance.spent_before;
    const gained = amount - balance.amount - (before - balance.spent_before);
    yield step(
      'update budget_balance set amount = ?, spent_before = ?, available = available + ? where id = ?',
      ...[amount, before, gained, balance.id],
    );
  }
}

/** Finds the owner of a budget. */
const liveSubject: Readonly<Record<BudgetChange['kind'], (subject: string) => Step>> = {
  key_budget: (keyId) => step(`select 1 from api_key where id = ? and status = 'active'`, keyId),
  member_budget: (subject) => {
    const { accountId, userId } = readMemberSubject(subject) ?? { accountId: '', userId: '' };
    // A write that changes nothing locks the row on PostgreSQL: a concurrent removal of the member waits, and removes the budget too.
    return step('update member set role = role where account_id = ? and user_id = ?', accountId, userId);
  },
  account_budget: (accountId) => step('select 1 from account where id = ? and kind = 0', accountId),
};

interface BalanceRow {
  readonly id: string;
  readonly amount: bigint;
  readonly spent_before: bigint;
}
