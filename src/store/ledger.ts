/**
 * The store of money. Amounts are integer microcents (1 cent = 1,000,000 microcents) in `bigint`, everywhere.
 * Ids and times are made by the caller. The design is docs/architecture.md, "Money".
 */

import type { Budget, BudgetPeriod } from './budget.ts';
import type { AccountStatus } from './database.ts';
import type { Recording } from './recordings.ts';

/** How a request ended, as the ledger records it. One row of the table of endings (docs/money.md) each. */
export type Ending =
  | 'finished' // whole answer: charged as reported
  | 'credit' // credit ran out in mid-answer: what was delivered is charged
  | 'client_left' // charged: input, and the output produced until then
  | 'reader_stalled' // as client_left
  | 'revoked' // key revoked or account suspended in mid-answer: as client_left
  | 'failed' // ours or the backend's fault: not charged
  | 'deadline' // ran longer than allowed: not charged
  | 'drained' // the service stopped: not charged
  | 'lost' // the settlement failed: not charged
  | 'crashed'; // the process died: not charged

/** One request, one row, written once. It is also the posting customer → revenue of `costMicrocents`. */
export interface UsageRow {
  /** UUIDv7, 16 bytes: the ledger's own key, never a client's value. */
  readonly requestId: Uint8Array;
  /** `req_<12 hex>` as the client saw it in `x-request-id`; not unique. */
  readonly publicId: string;
  /** What the client sent as `x-request-id`, made safe; null when it sent none. */
  readonly clientId: string | null;
  readonly accountId: string;
  readonly keyId: string;
  readonly modelId: string;
  /** API family: chat, completions, messages, responses. */
  readonly api: string;
  readonly streamed: boolean;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  readonly endedAt: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  /** What the account is charged; never above the hold. */
  readonly costMicrocents: bigint;
  /** List cost of what was done but not charged. */
  readonly unchargedMicrocents: bigint;
  readonly holdMicrocents: bigint;
  readonly ending: Ending;
  /** Finish reason of the (first) choice, null when there was none. */
  readonly finish: string | null;
  /** Error code, null when the request did not fail. */
  readonly errorCode: string | null;
  /** Token figures are counted by us, not reported by the backend. */
  readonly counted: boolean;
  /** Prices applied, microcents per million tokens. */
  readonly inputPrice: bigint;
  readonly outputPrice: bigint;
  readonly cacheReadPrice: bigint;
  /** Label of the backend that answered, null when none was reached. */
  readonly backend: string | null;
  readonly firstTokenMs: number | null;
  readonly totalMs: number;
  /** Tags for reports, a JSON array of strings; null when none. */
  readonly tags: string | null;
  /** The plan that covers the request: nothing is charged, and the list cost is `unchargedMicrocents`. null: paid from credit. */
  readonly plan: string | null;
  /** The period of the key's budget that it is charged to, by its start; null: the key has none. */
  readonly keyBudget: BudgetPeriod | null;
  /** The same of its account. */
  readonly accountBudget: BudgetPeriod | null;
  /** With zero data retention; left out: it is not known. */
  readonly zdr?: boolean;
}

/** A request that has been running for more than 250 ms: what a crash leaves behind to be recorded. */
export interface OpenRequest {
  readonly requestId: Uint8Array;
  readonly accountId: string;
  readonly keyId: string;
  readonly modelId: string;
  readonly holdMicrocents: bigint;
  readonly startedAt: number;
}

export type TransferKind = 'topup' | 'grant' | 'refund' | 'adjust' | 'chargeback' | 'expiry' | 'usage_closed';

/** Moves money between two accounts; one row is both sides, so that the ledger balances by construction. Immutable. */
export interface Transfer {
  readonly id: Uint8Array;
  readonly debitAccount: string;
  readonly creditAccount: string;
  readonly amountMicrocents: bigint;
  readonly kind: TransferKind;
  /** The same key twice moves money once. */
  readonly idempotencyKey: string;
  readonly reference: string | null;
  /** Who did it: `cli`, `system`, a user's id. */
  readonly by: string;
  readonly at: number;
  /** Written in the same transaction as the movement, and only with it. */
  readonly recording?: readonly Recording[];
}

/** House accounts: the other side of every transfer of a customer. They have no lower bound. */
export const systemAccounts = {
  cash: 'house_cash',
  promo: 'house_promo',
  revenue: 'house_revenue',
  badDebt: 'house_bad_debt',
} as const;

/**
 * Makes settlements durable, in groups, and hands out the right to spend. The hot path's only store.
 *
 * - A balance is the credit of an account, by the account's id, or what a budget has for a period (store/budget.ts).
 * - `slice` resolves with microcents that this process may spend of the balance without asking again; 0n = not funded.
 *   SQLite hands out the whole of it, once, at the first call; PostgreSQL leases a part of it. Less than nothing is what a
 *   budget has that was lowered under what is spent.
 * - `settle` resolves when the row is durable: `billed`, also when it was there already (settling twice is settling
 *   once), or `lost` when this process no longer owns the slice that the cost was held from. It rejects when the store
 *   failed; whether the row is there is then unknown, and `readBack` tells.
 * - `open` is written with the next group; nobody waits for it.
 * - `transfer` resolves `true` when money moved now, `false` when the idempotency key had been used (the same movement),
 *   and rejects when it would take a customer below its credit limit. What it
 *   carries (`recording`) is written if and only if money moved now; where that cannot be, nothing moves: `conflict`.
 */
export interface Ledger {
  slice(balanceId: string, needMicrocents: bigint): Promise<bigint>;
  settle(row: UsageRow): Promise<'billed' | 'lost'>;
  readBack(requestId: Uint8Array): Promise<{ readonly costMicrocents: bigint; readonly ending: Ending } | undefined>;
  /** Resolves when something was written, whose content means nothing: a sign that a settlement could be written too. */
  probe(): Promise<void>;
  open(request: OpenRequest): void;
  transfer(transfer: Transfer): Promise<boolean>;
  /** Settlements handed in and not yet durable; admission sheds when they are too many. */
  readonly backlog: number;
  /** How long ago the store last answered; 0 where it is in this process. Nothing is admitted from memory without it. */
  readonly silentMs: number;
  /** Says what is left of a balance's slice after a hold, so that a lease can be renewed before it is used up. */
  left(balanceId: string, freeMicrocents: bigint): void;
  /** Nothing is held from a budget's balance any more, and its period is over: what is free of it goes back. */
  release(balanceId: string): void;
  /** Somebody has changed the budget of a key or an account, or maybe any: what is free of leases goes back. */
  budgetChanged(subject: string | undefined): void;
  close(): Promise<void>;
}

/** What is written of accounts besides money. */
export interface AccountLedger extends Ledger {
  /** Of this process, among those that share the books; another one when they have declared it dead meanwhile. */
  readonly replicaId: Uint8Array;
  /** Makes a customer's account, with nothing on it. */
  createAccount(account: NewAccount): Promise<void>;
  /** Suspends or revives a customer. What is running is the directory's to cut; what has run is still settled. */
  setAccountStatus(accountId: string, status: AccountStatus, at: number, changeId: Uint8Array): Promise<void>;
  /** How far below zero a customer may go. Rejects as `insufficient` when the credit to be taken away is in use. */
  setCreditLimit(accountId: string, toMicrocents: bigint, at: number, changeId: Uint8Array): Promise<void>;
  /** Gives a live key or a customer a budget, another one, or none. Rejects as `not_found`. */
  setBudget(change: BudgetChange): Promise<void>;
}

export interface BudgetChange {
  readonly kind: 'key_budget' | 'account_budget';
  /** Id of the key or the account. */
  readonly subject: string;
  /** null: none from now on. */
  readonly budget: Budget | null;
  /** What it was charged in the period beside any budget of that kind. */
  readonly spentBeforeMicrocents: bigint;
  readonly at: number;
  readonly changeId: Uint8Array;
}

export interface NewAccount {
  readonly id: string;
  readonly name: string;
  readonly creditLimitMicrocents: bigint;
  readonly at: number;
  readonly changeId: Uint8Array;
  /** Written in the same transaction, or nothing is: rejects as `conflict`. */
  readonly recording?: readonly Recording[];
}

/**
 * The owner of the free balances in memory: what is spendable and neither held nor spent. Both calls are synchronous.
 *
 * A debit of a customer (adjustment, chargeback, refund of a top-up, a lower credit limit) must not take money that
 * running requests hold, and only this side knows the holds. So the ledger reserves first, then writes; and gives the
 * reservation back through `credit` when nothing was written. Accounts whose `slice` was never asked for have no holds:
 * for them nothing is reserved, and the database alone decides.
 */
export interface FreeBalances {
  /**
   * More is spendable than before: a committed top-up, a raised limit or budget, a reservation given back; or less, where
   * a budget was lowered. `free += microcents`.
   */
  credit(balanceId: string, microcents: bigint): void;
  /** Takes the amount out of the free balance when it is there: `free >= microcents && (free -= microcents, true)`. */
  reserve(balanceId: string, microcents: bigint): boolean;
}

/** Free balances that are leases: what is not used is given back, and a lease may be lost. */
export interface LeasedBalances extends FreeBalances {
  /** What is free now; 0n for a balance that no slice was asked for. */
  freeMicrocents(balanceId: string): bigint;
  /** Nothing of it is this process's to spend any more, neither what is free nor what is held. */
  forget(): void;
}

/** For a command that never asks for a slice. */
export const nothingFree = (): LeasedBalances => ({
  credit: () => {},
  reserve: () => false,
  freeMicrocents: () => 0n,
  forget: () => {},
});
