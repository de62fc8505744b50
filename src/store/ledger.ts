/**
 * The store of money. Amounts are integer microcents (1 cent = 1,000,000 microcents) in `bigint`, everywhere. Callers provide ids and
 * times. The design is in docs/architecture.md, "Money".
 */

import type { Budget, BudgetOwner } from './budget.ts';
import type { Warning } from '../platform/warnings.ts';
import type { AccountStatus, Ending, TransferKind } from './database.ts';
import type { Recording } from './recordings.ts';
import type { Row } from './schema/codec.ts';
import type { UsageAttempt, UsageFallback, UsageQueued } from './schema/tables.ts';

export type { Ending, TransferKind };

/**
 * One request, one row, written once. Omitted fields: `zdr` if unknown, `attempts` if there was no choice, `memberBudget` and `fallbacks`
 * if there was none.
 */
export type UsageRow = Omit<
  Row<'usage'>,
  | 'zdr'
  | 'backendAttempts'
  | 'memberBudget'
  | 'fallbacks'
  | 'tier'
  | 'queued'
  | 'batchId'
  | 'warnings'
  | 'priceMultiple'
> & {
  readonly zdr?: boolean;
  readonly memberBudget?: string | null;
  readonly attempts?: readonly UsageAttempt[] | undefined;
  readonly fallbacks?: readonly UsageFallback[] | undefined;
  readonly tier?: Row<'usage'>['tier'];
  readonly queued?: UsageQueued | undefined;
  readonly batchId?: string | null;
  readonly warnings?: readonly Warning[] | undefined;
  readonly priceMultiple?: number | undefined;
};

/** A request that has been running for more than 250 ms: listed so that it can be recorded after a crash. */
export interface OpenRequest {
  readonly requestId: Uint8Array;
  readonly accountId: string;
  readonly keyId: string;
  readonly modelId: string;
  readonly holdMicrocents: bigint;
  readonly startedAt: number;
}

/** Moves money between two accounts; one row is both sides, so the ledger balances by construction. Immutable. */
export type Transfer = Row<'transfer'> & {
  /** Written in the same transaction as the movement, and only with it. */
  readonly recording?: readonly Recording[];
};

/** System accounts: the counterparties of customers' transfers. They have no lower bound. */
export const systemAccounts = {
  cash: 'house_cash',
  promo: 'house_promo',
  revenue: 'house_revenue',
  badDebt: 'house_bad_debt',
} as const;

/**
 * Makes settlements durable, in groups, and grants the right to spend. The hot path's only store.
 *
 * - `settle` resolves when the row is durable: `billed`, even if it already existed (settling twice is settling once), or `lost` if this
 *   process no longer owns the lease that the cost was held from. It rejects if the store failed; it is then unknown whether the row
 *   exists, and `readBack` finds out.
 * - `open` is written with the next group; no caller waits for it.
 * - `transfer` resolves `true` if money moved now, `false` if the idempotency key had been used (the same movement), and rejects if it
 *   would take a customer below its credit limit. Its `recording` is written if and only if money moved now; if it cannot be written,
 *   nothing moves: `conflict`.
 */
export interface Ledger {
  readonly leases: CreditLeases;
  settle(row: UsageRow): Promise<'billed' | 'lost'>;
  readBack(requestId: Uint8Array): Promise<{ readonly costMicrocents: bigint; readonly ending: Ending } | undefined>;
  /** Resolves when something without meaning was written: proof that a settlement could be written too. */
  probe(): Promise<void>;
  open(request: OpenRequest): void;
  transfer(transfer: Transfer): Promise<boolean>;
  /** Settlements submitted and not yet durable; admission sheds when there are too many. */
  readonly backlog: number;
  /** Time since the store last answered; 0 if it is in this process. Nothing is admitted from memory without it. */
  readonly silentMs: number;
  close(): Promise<void>;
}

/**
 * What this process may spend of balances without asking again (store/leases.ts). A balance is the credit of an account, by the account's
 * id, or what a budget has for a period (store/budget.ts).
 */
export interface CreditLeases {
  /**
   * Resolves with microcents that this process may now spend: as many as are needed, or 0n if not funded. Anything leased beyond that is
   * already free (`FreeBalances.credit`).
   */
  lease(balanceId: string, needMicrocents: bigint): Promise<bigint>;
  /** Reports what is left of a balance's lease after a hold, so that it can be renewed before it is used up. */
  noteRemaining(balanceId: string, freeMicrocents: bigint): void;
  /** Reports that what a hold left over, or could not hold, is free again. */
  freed(balanceId: string): void;
  /** The period of a budget's balance is over and nothing is held from it any more: returns its free part. */
  release(balanceId: string): void;
  /** The budget of a key, a member or an account has changed, or possibly any budget: returns the free part of the leases. */
  budgetChanged(subject: string | undefined): void;
}

/** The ledger plus writes to accounts other than money. */
export interface AccountLedger extends Ledger {
  /** Id of this process among those that share the ledger; a new one once it has expired. */
  readonly replicaId: Uint8Array;
  /** Creates a customer's account with a zero balance. */
  createAccount(account: NewAccount): Promise<void>;
  /** Suspends or reactivates a customer. The directory cuts running requests; what they have used is still settled. */
  setAccountStatus(accountId: string, status: AccountStatus, at: number, changeId: Uint8Array): Promise<void>;
  /** Sets how far below zero a customer may go. Rejects with `insufficient` if the credit to be removed is in use. */
  setCreditLimit(accountId: string, toMicrocents: bigint, at: number, changeId: Uint8Array): Promise<void>;
  /**
   * Takes back a payment or part of it: what the account has free now, and what requests hold when they end. Idle parts of what is owed
   * have been called in when it resolves. Repeating the call takes what has become free since. Rejects with `not_found` if the return is
   * not decided and no decision is given.
   */
  reverse(request: Reversal): Promise<Reversed>;
  /**
   * Undoes a reversal atomically. undefined: nothing was decided. Rejects with `conflict` if a different amount than the given one has been
   * taken.
   */
  reinstate(request: Reinstatement): Promise<Reinstated | undefined>;
  /** Sets, replaces or removes the budget of a live key, a member or a customer. Rejects with `not_found`. */
  setBudget(change: BudgetChange): Promise<void>;
}

/** A refund or dispute that takes money back. */
export interface Reversal {
  readonly provider: string;
  readonly returnId: string;
  readonly accountId: string;
  /** Ids of the movements from the account, and from the operator's losses. */
  readonly ids: readonly [Uint8Array, Uint8Array];
  readonly at: number;
  /** Omitted: it was decided before. */
  readonly decision?: {
    readonly kind: 'refund' | 'dispute';
    readonly paymentId: string;
    readonly topupId: string;
    readonly amountMicrocents: bigint;
    /** Written with the decision. */
    readonly recording: readonly Recording[];
    /** Written instead if the payment has nothing left to be returned. */
    readonly recordingIfBeyond: readonly Recording[];
  };
}

/** What this call did, and what is left. */
export interface Reversed {
  /** Whether this call decided it. */
  readonly isNew: boolean;
  /** Whether it has failed or was won. */
  readonly isUndone: boolean;
  readonly takenMicrocents: bigint;
  /** The operator's loss, because it was already spent. */
  readonly lostMicrocents: bigint;
  /** Held by running requests. */
  readonly owedMicrocents: bigint;
  /** More than was paid, which nobody owes. */
  readonly beyondMicrocents: bigint;
}

/** A refund or dispute that is undone. */
export interface Reinstatement {
  readonly provider: string;
  readonly returnId: string;
  readonly accountId: string;
  /** Ids of the movements to the account, and to the operator's losses. */
  readonly ids: readonly [Uint8Array, Uint8Array];
  /** What it has taken from the account, as known to the caller. */
  readonly takenMicrocents: bigint;
  readonly at: number;
  readonly recording: readonly Recording[];
}

export interface Reinstated {
  /** Whether this call undid it. */
  readonly isNew: boolean;
  /** Other returns of the payment that may now take what was beyond it. */
  readonly dueAgain: readonly string[];
}

export interface BudgetChange {
  readonly kind: `${BudgetOwner}_budget`;
  /** The id of the key or account, or the result of `memberSubject` or `modelSubject`. */
  readonly subject: string;
  /** null: no budget from now on. */
  readonly budget: Budget | null;
  /** What was charged in the period outside any budget of that kind. */
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
  /** Written in the same transaction; if that is not possible, nothing is written and it rejects with `conflict`. */
  readonly recording?: readonly Recording[];
}

/**
 * The owner of the free balances in memory: what this process has leased and neither holds nor has spent. All calls are synchronous.
 *
 * A debit of a customer (adjustment, chargeback, refund of a top-up, a lower credit limit) must not take money that running requests hold,
 * and only this side knows the holds. So the free part of the account's credit is returned before the debit.
 */
export interface FreeBalances {
  /**
   * More is spendable than before, by a lease; or less, if a budget was lowered. `free += microcents`. 0n means there may be more for those
   * who ask again.
   */
  credit(balanceId: string, microcents: bigint): void;
  /** Removes the amount from the free balance if available: `free >= microcents && (free -= microcents, true)`. */
  reserve(balanceId: string, microcents: bigint): boolean;
  /** What is free now; 0n for a balance without a lease. */
  freeMicrocents(balanceId: string): bigint;
  /** Nothing is leased of the balance any more, so it can be forgotten if nothing of it is free. */
  drop(balanceId: string): void;
  /** This process may not spend any of it any more, neither the free part nor what is held. */
  forget(): void;
}

/** For a command that never calls `lease`. */
export const nothingFree = (): FreeBalances => ({
  credit: () => {},
  reserve: () => false,
  freeMicrocents: () => 0n,
  drop: () => {},
  forget: () => {},
});
