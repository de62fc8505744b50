/**
 * The store of money. Amounts are integer microcents (1 cent = 1,000,000 microcents) in `bigint`, everywhere.
 * Ids and times are made by the caller. The design is docs/architecture.md, "Money".
 */

import type { Budget, BudgetOwner } from './budget.ts';
import type { AccountStatus, Ending, TransferKind } from './database.ts';
import type { Recording } from './recordings.ts';
import type { Row } from './schema/codec.ts';
import type { UsageAttempt, UsageFallback } from './schema/tables.ts';

export type { Ending, TransferKind };

/** One request, one row, written once. `zdr` is left out where it is not known, `attempts` where there was no choice, `memberBudget` where there is none, `fallbacks` where there was none. */
export type UsageRow = Omit<Row<'usage'>, 'zdr' | 'backendAttempts' | 'memberBudget' | 'fallbacks'> & {
  readonly zdr?: boolean;
  readonly memberBudget?: string | null;
  readonly attempts?: readonly UsageAttempt[] | undefined;
  readonly fallbacks?: readonly UsageFallback[] | undefined;
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

/** Moves money between two accounts; one row is both sides, so that the ledger balances by construction. Immutable. */
export type Transfer = Row<'transfer'> & {
  /** Written in the same transaction as the movement, and only with it. */
  readonly recording?: readonly Recording[];
};

/** System accounts: the other side of every transfer of a customer. They have no lower bound. */
export const systemAccounts = {
  cash: 'house_cash',
  promo: 'house_promo',
  revenue: 'house_revenue',
  badDebt: 'house_bad_debt',
} as const;

/**
 * Makes settlements durable, in groups, and hands out the right to spend. The hot path's only store.
 *
 * - `settle` resolves when the row is durable: `billed`, also when it was there already (settling twice is settling once), or
 *   `lost` when this process no longer owns the lease that the cost was held from. It rejects when the store failed; it is then
 *   unknown whether the row is there, and `readBack` tells.
 * - `open` is written with the next group; no caller waits for it.
 * - `transfer` resolves `true` when money moved now, `false` when the idempotency key had been used (the same movement),
 *   and rejects when it would take a customer below its credit limit. What it
 *   carries (`recording`) is written if and only if money moved now; where that cannot be, nothing moves: `conflict`.
 */
export interface Ledger {
  readonly leases: CreditLeases;
  settle(row: UsageRow): Promise<'billed' | 'lost'>;
  readBack(requestId: Uint8Array): Promise<{ readonly costMicrocents: bigint; readonly ending: Ending } | undefined>;
  /** Resolves when something was written, whose content means nothing: proof that a settlement could be written too. */
  probe(): Promise<void>;
  open(request: OpenRequest): void;
  transfer(transfer: Transfer): Promise<boolean>;
  /** Settlements handed in and not yet durable; admission sheds when they are too many. */
  readonly backlog: number;
  /** How long ago the store last answered; 0 where it is in this process. Nothing is admitted from memory without it. */
  readonly silentMs: number;
  close(): Promise<void>;
}

/**
 * What this process may spend of balances without asking again (store/leases.ts). A balance is the credit of an account, by the
 * account's id, or what a budget has for a period (store/budget.ts).
 */
export interface CreditLeases {
  /**
   * Resolves with microcents that are now this process's to spend: as many as are needed, or 0n: not funded. What was leased beyond
   * that is free already (`FreeBalances.credit`).
   */
  lease(balanceId: string, needMicrocents: bigint): Promise<bigint>;
  /** Reports what is left of a balance's lease after a hold, so that it can be renewed before it is used up. */
  noteRemaining(balanceId: string, freeMicrocents: bigint): void;
  /** What a hold has left over, or did not get to hold, is free again. */
  freed(balanceId: string): void;
  /** The period of a budget's balance is over and nothing is held from it any more: what is free of it goes back. */
  release(balanceId: string): void;
  /** The budget of a key, a member or an account has changed, or possibly any budget: what is free of leases goes back. */
  budgetChanged(subject: string | undefined): void;
}

/** The writes to accounts besides money. */
export interface AccountLedger extends Ledger {
  /** Id of this process among those that share the ledger; a new one once it has expired. */
  readonly replicaId: Uint8Array;
  /** Creates a customer's account with a zero balance. */
  createAccount(account: NewAccount): Promise<void>;
  /** Suspends or revives a customer. The directory cuts running requests; what has run is still settled. */
  setAccountStatus(accountId: string, status: AccountStatus, at: number, changeId: Uint8Array): Promise<void>;
  /** Sets how far below zero a customer may go. Rejects as `insufficient` when the credit to be taken away is in use. */
  setCreditLimit(accountId: string, toMicrocents: bigint, at: number, changeId: Uint8Array): Promise<void>;
  /**
   * Takes back a payment or a part of it: what the account has free now, and what requests hold when they end. Idle parts of what is
   * owed have been called in when it resolves. The same again takes what has become free since. Rejects as `not_found` a return that is not decided where no decision comes with it.
   */
  reverse(request: Reversal): Promise<Reversed>;
  /**
   * Undoes that, all at once. Undefined: nothing was decided. Rejects as `conflict` when other than the named amount has been taken.
   */
  reinstate(request: Reinstatement): Promise<Reinstated | undefined>;
  /** Sets, replaces or removes the budget of a live key, a member or a customer. Rejects as `not_found`. */
  setBudget(change: BudgetChange): Promise<void>;
}

/** A refund or a dispute that takes. */
export interface Reversal {
  readonly provider: string;
  readonly returnId: string;
  readonly accountId: string;
  /** Of the movements from the account, and from the operator's losses. */
  readonly ids: readonly [Uint8Array, Uint8Array];
  readonly at: number;
  /** Left out: it was decided before. */
  readonly decision?: {
    readonly kind: 'refund' | 'dispute';
    readonly paymentId: string;
    readonly topupId: string;
    readonly amountMicrocents: bigint;
    /** Written with the decision. */
    readonly recording: readonly Recording[];
    /** In its place where the payment has nothing left to be returned. */
    readonly recordingIfBeyond: readonly Recording[];
  };
}

/** What this call did, and what is left. */
export interface Reversed {
  /** It was decided by this call. */
  readonly isNew: boolean;
  /** It has failed, or was won. */
  readonly isUndone: boolean;
  readonly takenMicrocents: bigint;
  /** What the operator loses: it was spent before. */
  readonly lostMicrocents: bigint;
  /** Held by requests that run. */
  readonly owedMicrocents: bigint;
  /** More than was paid: nobody owes it. */
  readonly beyondMicrocents: bigint;
}

/** A refund or a dispute that is undone. */
export interface Reinstatement {
  readonly provider: string;
  readonly returnId: string;
  readonly accountId: string;
  /** Of the movements to the account, and to the operator's losses. */
  readonly ids: readonly [Uint8Array, Uint8Array];
  /** What it has taken from the account, by the caller's knowledge. */
  readonly takenMicrocents: bigint;
  readonly at: number;
  readonly recording: readonly Recording[];
}

export interface Reinstated {
  /** It was undone by this call. */
  readonly isNew: boolean;
  /** Other returns of the payment that may take now what was beyond it. */
  readonly dueAgain: readonly string[];
}

export interface BudgetChange {
  readonly kind: `${BudgetOwner}_budget`;
  /** Id of the key or the account, or what `memberSubject` makes. */
  readonly subject: string;
  /** null: none from now on. */
  readonly budget: Budget | null;
  /** What it was charged in the period outside any budget of that kind. */
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
  /** Written in the same transaction, or nothing is: then it rejects as `conflict`. */
  readonly recording?: readonly Recording[];
}

/**
 * The owner of the free balances in memory: what this process has leased and neither holds nor has spent. All calls are synchronous.
 *
 * A debit of a customer (adjustment, chargeback, refund of a top-up, a lower credit limit) must not take money that running
 * requests hold, and only this side knows the holds. So what is free of the account goes back before the debit.
 */
export interface FreeBalances {
  /**
   * More is spendable than before, by a lease; or less, where a budget was lowered. `free += microcents`. With 0n: there may be more
   * for those who ask again.
   */
  credit(balanceId: string, microcents: bigint): void;
  /** Takes the amount out of the free balance when it is there: `free >= microcents && (free -= microcents, true)`. */
  reserve(balanceId: string, microcents: bigint): boolean;
  /** What is free now; 0n for a balance without a lease. */
  freeMicrocents(balanceId: string): bigint;
  /** Nothing is leased of the balance any more, so that there is nothing to remember where nothing of it is free. */
  drop(balanceId: string): void;
  /** Nothing of it is this process's to spend any more, neither the free part nor what is held. */
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
