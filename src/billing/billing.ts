import { ApiError, atCap } from '../platform/errors.ts';
import type { FreeBalances, Ledger, UsageRow } from '../store/ledger.ts';
import { budgetsOf, estimate, everything, hasBudget } from './bill.ts';
import type { Bill, BudgetBill, Estimate } from './bill.ts';
import { budgetRefusal } from './budget-refusal.ts';
import { ceiledCents, flooredCents } from './cents.ts';
import { LedgerHealth } from './ledger-health.ts';
import { Hold, HoldLimits } from './hold.ts';
import type { Funds, HoldServices } from './hold.ts';
import { decide, repair } from './repair.ts';
import type { RepairLog } from './repair.ts';

export interface BillingOptions {
  readonly ledger: Ledger;
  /** Generates UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** The clock shared by all processes on the ledger; defaults to this machine's. */
  readonly now?: () => number;
  /** Where a user adds credit; `topup_url` of the 402 (specification §7.6). */
  readonly topupUrl: () => string;
  readonly log: RepairLog;
  /** Maximum settlements waiting for the store before admission sheds. */
  readonly backlogMax?: number;
  /** Whether other processes lease from the same balances. */
  readonly sharesLedger?: boolean;
}

/** After a refusal, a balance is refused from memory for this long, so that a customer without credit cannot cause a storm. */
const refusalMs = 250;
/** How often to look for balances of ended periods, and the delay after a period ends. */
const endedEveryMs = 60_000;

/** Balances in memory over the durable ledger: decides in microseconds whether a request is funded. */
export class Billing {
  readonly #options: BillingOptions;
  readonly #ledgerHealth: LedgerHealth;
  readonly #holdServices: HoldServices;
  /** Microcents that can still be held, by balance: an account's credit, or a budget's period. Absent until the first request. */
  readonly #free = new Map<string, bigint>();
  readonly #refusedUntil = new Map<string, number>();
  /** Balances of budgets, with the requests that may hold from each. */
  readonly #ofBudgets = new Map<string, { requests: number; readonly endsAt: number | null }>();
  #endedAt = 0;
  /** Holds that have not been settled or released. */
  #openHolds = 0;
  #heldMicrocents = 0n;
  /** Incremented when this process loses everything it could spend; earlier holds are then worthless. */
  #epoch = 0;

  constructor(options: BillingOptions) {
    this.#options = options;
    this.#ledgerHealth = new LedgerHealth(options.ledger);
    this.#holdServices = this.#servicesOfHolds();
  }

  get openHolds(): number {
    return this.#openHolds;
  }

  /** Whether the ledger answers, judged as for requests: a service that refuses requests because of it is not ready. */
  isAnswered(): Promise<boolean> {
    return this.#ledgerHealth.answers();
  }

  /** The sum of all open holds. */
  get heldMicrocents(): bigint {
    return this.#heldMicrocents;
  }

  /**
   * Holds the estimate of a request, or throws `insufficient_credits` 402 (specification §7.6). `countPrompt` gives the exact
   * number of prompt tokens, and is called only when the bound is not funded; `undefined` when it cannot be counted.
   */
  async hold(bill: Bill, countPrompt: () => Promise<number | undefined> = uncounted): Promise<Hold> {
    const { ledger, backlogMax = 10_000 } = this.#options;
    if (ledger.backlog > backlogMax) {
      const message = 'Too many settlements are waiting for the database.';
      throw new ApiError('backend_at_capacity', message, atCap(backlogMax, 1));
    }
    if (this.#ledgerHealth.isLost && !(await this.isAnswered())) throw ledgerSilent();
    const atOnce = this.#holdFromMemory(bill);
    if (atOnce !== undefined) return atOnce;
    const budgets = budgetsOf(bill);
    const first = estimate(bill, bill.promptTokensMax);
    let lack: Lack | undefined =
      budgets !== undefined
        ? await this.#fundAll(bill, budgets, first.amount)
        : (await this.#fund(bill.account.id, first.amount))
          ? undefined
          : 'credit';
    if (lack === undefined) return this.#open(bill, first, budgets);
    // The bound from bytes is several times the real count: before a 402 the prompt is counted exactly, at a backend, where that can help.
    const canHelp = this.#freeOf(bill.account.id, lack) >= estimate(bill, 0).amount;
    const counted = canHelp ? await countPrompt() : undefined;
    if (counted !== undefined && counted < bill.promptTokensMax) {
      const exact = estimate(bill, counted);
      lack = await this.#fundAll(bill, budgets ?? [], exact.amount);
      if (lack === undefined) return this.#open(bill, exact, budgets);
      throw this.#refusal(bill.account.id, exact.amount, lack);
    }
    throw this.#refusal(bill.account.id, first.amount, lack);
  }

  /** The same without a promise, if the ledger is healthy and memory can decide, as it can for nearly every request. */
  holdAtOnce(bill: Bill): Hold | undefined {
    const { ledger, backlogMax = 10_000 } = this.#options;
    return ledger.backlog > backlogMax || this.#ledgerHealth.isLost ? undefined : this.#holdFromMemory(bill);
  }

  /**
   * Throws the 402 of `hold` if not even one token each way could be held, so that no work is done for a caller who cannot pay; holds
   * nothing. If other processes lease from the same balances, it refuses only what was refused a moment ago: a lease taken just to check
   * would split the last of the credit among processes, and none of them could hold it.
   */
  async check(bill: Bill): Promise<void> {
    if (bill.plan !== null) return;
    if (this.#options.sharesLedger === true) {
      if (!this.#isRefused(bill.account.id)) return;
      throw this.#refusal(bill.account.id, estimate(bill, bill.promptTokensMax).amount, 'credit');
    }
    const budgets = budgetsOf(bill) ?? [];
    const epoch = this.#epoch;
    const { amount } = estimate({ ...bill, completionTokensMax: Math.min(1, bill.completionTokensMax) }, 1);
    const lack = await this.#fundAll(bill, budgets, amount);
    if (lack !== undefined) {
      throw this.#refusal(bill.account.id, estimate(bill, bill.promptTokensMax).amount, lack);
    }
    this.#end(budgets);
    if (epoch !== this.#epoch) return; // the amount belonged to the earlier epoch
    for (const { balance } of budgets) this.#addFreed(balance.id, amount);
    this.#addFreed(bill.account.id, amount);
  }

  /** Throws `insufficient_credits` 402 when the account has no credit at all, as holding the smallest amount would. */
  async requireSome(accountId: string): Promise<void> {
    const epoch = this.#epoch;
    if (!(await this.#fund(accountId, 1n))) throw this.#refusal(accountId, 1n, 'credit');
    if (epoch === this.#epoch) this.#addFreed(accountId, 1n);
  }

  #holdFromMemory(bill: Bill): Hold | undefined {
    if (bill.plan !== null) return this.#open(bill, { amount: 0n, covered: everything }, undefined);
    const accountId = bill.account.id;
    if (hasBudget(bill)) return undefined;
    const first = estimate(bill, bill.promptTokensMax);
    if (!this.reserve(accountId, first.amount)) return undefined;
    this.#options.ledger.leases.noteRemaining(accountId, this.#free.get(accountId) ?? 0n);
    return this.#open(bill, first, undefined);
  }

  /** Takes up to `amount` for a growing hold, asking the store for more if necessary. */
  take(balanceId: string, amount: bigint): bigint | Promise<bigint> {
    if (this.reserve(balanceId, amount)) {
      this.#options.ledger.leases.noteRemaining(balanceId, this.#free.get(balanceId) ?? 0n);
      return amount;
    }
    if (this.#isRefused(balanceId)) return this.#takeFree(balanceId, amount);
    return this.#lease(balanceId, amount).then(
      (leased) => {
        this.#add(balanceId, leased);
        if (leased === 0n) this.#refuse(balanceId);
        return this.#takeFree(balanceId, amount);
      },
      () => this.#takeFree(balanceId, amount),
    );
  }

  #takeFree(balanceId: string, amount: bigint): bigint {
    const free = this.#free.get(balanceId) ?? 0n;
    const taken = free < amount ? (free > 0n ? free : 0n) : amount;
    this.#free.set(balanceId, free - taken);
    return taken;
  }

  /**
   * Adds to what can be held: leased or returned microcents, or a negative amount after a budget was lowered. 0n means the ledger may have
   * more.
   */
  credit(balanceId: string, microcents: bigint): void {
    if (microcents !== 0n) this.#add(balanceId, microcents);
    this.#refusedUntil.delete(balanceId);
  }

  /** Removes the amount from the balance, for a hold or to return it to the ledger; false if it is not free. */
  reserve(balanceId: string, microcents: bigint): boolean {
    const free = this.#free.get(balanceId);
    if (free === undefined || free < microcents) return false;
    this.#free.set(balanceId, free - microcents);
    return true;
  }

  /** Microcents that can be held from the balance now; `undefined` before its first request. */
  freeMicrocents(balanceId: string): bigint | undefined {
    return this.#free.get(balanceId);
  }

  /** Forgets the balance, of which nothing is leased any more. */
  drop(balanceId: string): void {
    if (this.#free.get(balanceId) === 0n) this.#free.delete(balanceId);
  }

  /** The number of balances in memory: accounts and budgets with a lease. */
  get balances(): number {
    return this.#free.size;
  }

  /** This process has expired and no longer owns anything that was free or held. */
  forget(): void {
    this.#epoch++;
    this.#free.clear();
    this.#refusedUntil.clear();
  }

  /**
   * Holds the amount from every balance of the bill or from none, and returns the one that falls short. It proceeds sequentially: what the
   * store granted for one balance could be taken by another request while the next is requested.
   */
  async #fundAll(bill: Bill, budgets: readonly BudgetBill[], amount: bigint): Promise<Lack | undefined> {
    this.#begin(budgets, bill.startedAt);
    const epoch = this.#epoch;
    const taken: { readonly balanceId: string; readonly epoch: number }[] = [];
    let lack: Lack | undefined = 'credit';
    try {
      for (const payer of [...budgets, 'credit' as const]) {
        const balanceId = payer === 'credit' ? bill.account.id : payer.balance.id;
        lack = payer;
        if (!(await this.#fund(balanceId, amount))) return lack;
        taken.push({ balanceId, epoch: this.#epoch });
      }
      // The amounts taken first belong to an epoch that is over.
      if (epoch !== this.#epoch) throw ledgerSilent();
      lack = undefined;
      return lack;
    } finally {
      if (lack !== undefined) {
        for (const one of taken) if (one.epoch === this.#epoch) this.#addFreed(one.balanceId, amount);
        this.#end(budgets);
      }
    }
  }

  /** Takes, for a growing hold, as much as every one of the balances has. */
  #takeAll(balanceIds: readonly string[], amount: bigint): bigint | Promise<bigint> {
    if (!balanceIds.every((balanceId) => (this.#free.get(balanceId) ?? -1n) >= amount))
      return this.#takeLeast(balanceIds, amount);
    for (const balanceId of balanceIds) void this.take(balanceId, amount);
    return amount;
  }

  async #takeLeast(balanceIds: readonly string[], amount: bigint): Promise<bigint> {
    const epoch = this.#epoch;
    let least = amount;
    const taken: string[] = [];
    for (const balanceId of balanceIds) {
      const there = await this.take(balanceId, least);
      if (epoch !== this.#epoch) {
        this.#add(balanceId, there); // belongs to the new epoch, unlike the hold
        return 0n;
      }
      for (const earlier of taken) this.#addFreed(earlier, least - there);
      least = there;
      taken.push(balanceId);
    }
    return least;
  }

  async #takeFrom(
    funds: Funds,
    budgets: Funds['budgets'],
    heldMicrocents: bigint,
    more: bigint,
  ): Promise<Funds | undefined> {
    const next = { ...funds, budgets };
    const added = budgetsBeside(next, funds);
    this.#begin(added, (this.#options.now ?? Date.now)());
    const taken: { readonly balanceId: string; readonly epoch: number }[] = [];
    let there = 0n;
    let isHeld = false;
    try {
      for (const { balance } of added) {
        if (!(await this.#fund(balance.id, heldMicrocents))) return undefined;
        taken.push({ balanceId: balance.id, epoch: this.#epoch });
      }
      if (more > 0n) there = await this.#holdServices.take(next, more);
      isHeld = there === more && funds.epoch === this.#epoch;
      return isHeld ? next : undefined;
    } finally {
      if (!isHeld) {
        this.#holdServices.untake(next, there);
        for (const one of taken) if (one.epoch === this.#epoch) this.#addFreed(one.balanceId, heldMicrocents);
        this.#end(added);
      }
    }
  }

  #begin(budgets: readonly BudgetBill[], startedAt: number): void {
    for (const { balance } of budgets) {
      const known = this.#ofBudgets.get(balance.id);
      if (known !== undefined) known.requests++;
      else {
        this.#forgetEnded(startedAt);
        this.#ofBudgets.set(balance.id, { requests: 1, endsAt: balance.endsAt });
      }
    }
  }

  #end(budgets: readonly BudgetBill[]): void {
    for (const { balance } of budgets) this.#ofBudgets.get(balance.id)!.requests--;
  }

  /** Forgets balances of ended periods without holds; one per budget may accumulate in each period. */
  #forgetEnded(now: number): void {
    if (Math.abs(now - this.#endedAt) < endedEveryMs) return;
    this.#endedAt = now;
    for (const [balanceId, { requests, endsAt }] of this.#ofBudgets) {
      if (requests > 0 || endsAt === null || endsAt + endedEveryMs > now) continue;
      this.#ofBudgets.delete(balanceId);
      this.#options.ledger.leases.release(balanceId);
      this.#free.delete(balanceId);
      this.#refusedUntil.delete(balanceId);
    }
  }

  /** Tries to hold the amount. Nothing is awaited between checking what is free and taking from it. */
  async #fund(balanceId: string, amount: bigint): Promise<boolean> {
    if (this.reserve(balanceId, amount)) {
      this.#options.ledger.leases.noteRemaining(balanceId, this.#free.get(balanceId) ?? 0n);
      return true;
    }
    if (this.#isRefused(balanceId)) return false;
    this.#add(balanceId, await this.#lease(balanceId, amount));
    if (this.reserve(balanceId, amount)) return true;
    this.#refuse(balanceId);
    return false;
  }

  #isRefused(balanceId: string): boolean {
    return (this.#refusedUntil.get(balanceId) ?? 0) > performance.now();
  }

  async #lease(balanceId: string, need: bigint): Promise<bigint> {
    try {
      return await this.#ledgerHealth.watch(this.#options.ledger.leases.lease(balanceId, need));
    } catch (error) {
      throw ledgerSilent(error);
    }
  }

  #add(balanceId: string, microcents: bigint): void {
    this.#free.set(balanceId, (this.#free.get(balanceId) ?? 0n) + microcents);
  }

  /** Adds back an amount that was held, or taken for a hold, and is not needed. */
  #addFreed(balanceId: string, microcents: bigint): void {
    this.#add(balanceId, microcents);
    this.#options.ledger.leases.freed(balanceId);
  }

  #refuse(balanceId: string): void {
    if (this.#refusedUntil.size > 10_000) this.#refusedUntil.clear();
    this.#refusedUntil.set(balanceId, performance.now() + refusalMs);
  }

  #freeOf(accountId: string, lack: Lack): bigint {
    return this.#free.get(lack === 'credit' ? accountId : lack.balance.id) ?? 0n;
  }

  #refusal(accountId: string, need: bigint, lack: Lack): ApiError {
    const free = this.#freeOf(accountId, lack);
    const amounts = {
      credits_available_cents: flooredCents(free > 0n ? free : 0n),
      credits_required_cents_estimate: ceiledCents(need),
      topup_url: this.#options.topupUrl(),
    };
    if (lack !== 'credit') return budgetRefusal(lack, amounts);
    return new ApiError(
      'insufficient_credits',
      'The prepaid balance does not cover this request. Add credit, or lower max_tokens.',
      { extra: amounts },
    );
  }

  #open(bill: Bill, { amount, covered }: Estimate, budgets: readonly BudgetBill[] | undefined): Hold {
    this.#openHolds++;
    this.#heldMicrocents += amount;
    const funds = { accountId: bill.account.id, isOfPlan: bill.plan !== null, budgets, epoch: this.#epoch };
    return new Hold(bill, amount, covered, funds, this.#holdServices);
  }

  /** Settling a hold of an earlier epoch would spend what now belongs to other processes (docs/money.md). */
  #mayCharge({ epoch }: Funds, row: UsageRow): boolean {
    return epoch === this.#epoch || row.costMicrocents === 0n;
  }

  /** Made once: a closure for each of them and each hold took a kilobyte and more of every request. */
  #servicesOfHolds(): HoldServices {
    const { ledger, newId, now = Date.now, log } = this.#options;
    const taken = (microcents: bigint): bigint => {
      this.#heldMicrocents += microcents;
      return microcents;
    };
    return {
      limits: new HoldLimits(),
      open: (request) => ledger.open(request),
      settle: (funds, row, done) => {
        if (this.#mayCharge(funds, row)) this.#ledgerHealth.report(ledger.settle(row), done);
        else done('lost');
      },
      take: ({ accountId, budgets, epoch }, more) => {
        if (epoch !== this.#epoch) return 0n;
        const there =
          budgets === undefined ? this.take(accountId, more) : this.#takeAll(balanceIdsOf(accountId, budgets), more);
        if (typeof there === 'bigint') return taken(there);
        return there.then((later) => {
          if (epoch === this.#epoch) return taken(later);
          this.#add(accountId, later); // belongs to the new epoch, unlike the hold
          return 0n;
        });
      },
      takeFrom: (funds, budgets, heldMicrocents, more) => this.#takeFrom(funds, budgets, heldMicrocents, more),
      leave: (from, to, heldMicrocents) => {
        const left = budgetsBeside(from, to);
        if (from.epoch === this.#epoch) for (const { balance } of left) this.#addFreed(balance.id, heldMicrocents);
        this.#end(left);
      },
      untake: (funds, microcents) => {
        this.#heldMicrocents -= microcents;
        this.#returnUnused(funds, microcents);
      },
      closed: (funds, heldMicrocents, charged) => {
        this.#openHolds--;
        this.#heldMicrocents -= heldMicrocents;
        // A plan's request takes nothing, so the account's lease was never requested.
        if (!funds.isOfPlan) this.#returnUnused(funds, heldMicrocents - charged);
        if (funds.budgets !== undefined) this.#end(funds.budgets);
      },
      decide: (row) =>
        decide(
          row,
          {
            settle: (of) => this.#ledgerHealth.watch(ledger.settle(of)),
            readBack: (requestId) => ledger.readBack(requestId),
          },
          log,
        ),
      repair: (funds, row) =>
        repair(
          row,
          {
            settle: (of) =>
              this.#mayCharge(funds, of) ? this.#ledgerHealth.watch(ledger.settle(of)) : Promise.resolve('lost'),
            readBack: (requestId) => ledger.readBack(requestId),
            transfer: (transfer) => ledger.transfer(transfer),
          },
          { newId, now },
          log,
        ),
    };
  }

  #returnUnused({ accountId, budgets, epoch }: Funds, microcents: bigint): void {
    if (epoch !== this.#epoch) return;
    if (budgets === undefined) this.#addFreed(accountId, microcents);
    else for (const balanceId of balanceIdsOf(accountId, budgets)) this.#addFreed(balanceId, microcents);
  }
}

/** The budgets that only the first has. */
const budgetsBeside = (some: Funds, others: Funds): readonly BudgetBill[] =>
  (some.budgets ?? []).filter(({ balance }) => others.budgets?.some((one) => one.balance.id === balance.id) !== true);

const balanceIdsOf = (accountId: string, budgets: readonly BudgetBill[]): readonly string[] => [
  ...budgets.map(({ balance }) => balance.id),
  accountId,
];

/** The balances of a `Billing` for its ledger; the two depend on each other. */
export const freeBalancesOf = (billing: () => Billing): FreeBalances => ({
  credit: (balanceId, microcents) => billing().credit(balanceId, microcents),
  reserve: (balanceId, microcents) => billing().reserve(balanceId, microcents),
  freeMicrocents: (balanceId) => billing().freeMicrocents(balanceId) ?? 0n,
  drop: (balanceId) => billing().drop(balanceId),
  forget: () => billing().forget(),
});

/** What cannot pay: the account's credit, or a budget. */
type Lack = 'credit' | BudgetBill;

/** Nothing is admitted while its cost could not be recorded (reliability D1, D3). */
const ledgerSilent = (cause?: unknown): ApiError =>
  new ApiError('internal_error', 'The ledger does not answer.', { retryAfterSeconds: 1, cause });

const uncounted = (): Promise<undefined> => Promise.resolve(undefined);
