import { ApiError, atCap } from '../errors.ts';
import type { Usage } from '../generation/event.ts';
import type { Ledger, UsageRow } from '../store/ledger.ts';
import { holdStepTokens } from './bill.ts';
import type { Bill, BudgetBill } from './bill.ts';
import { budgetRefusal } from './budget-refusal.ts';
import { ceiledCents, flooredCents } from './cents.ts';
import { Contact } from './contact.ts';
import { Hold } from './hold.ts';
import { repair } from './repair.ts';
import type { RepairLog } from './repair.ts';

export interface BillingOptions {
  readonly ledger: Ledger;
  /** Makes UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** What time it is for all who share the ledger; else by this machine. */
  readonly now?: () => number;
  /** Where a person adds credit; `topup_url` of the 402 (specification §7.6). */
  readonly topupUrl: () => string;
  readonly log: RepairLog;
  /** Settlements that may wait for the store before admission sheds. */
  readonly backlogMax?: number;
}

/** After a refusal a purse is refused from memory for so long, so that a broke customer cannot cause a storm. */
const refusalMs = 250;
/** How often it is looked for purses of periods that are over, and how long after their end. */
const endedEveryMs = 60_000;

/** Purses in memory over the durable ledger: decides in microseconds whether a request is funded. */
export class Billing {
  readonly #options: BillingOptions;
  readonly #contact: Contact;
  /** Microcents that can still be held, by purse: an account's credit, or a budget's period. Absent until its first request. */
  readonly #free = new Map<string, bigint>();
  readonly #loading = new Map<string, Promise<void>>();
  readonly #refusedUntil = new Map<string, number>();
  /** Purses of budgets, with the requests that may hold from each. */
  readonly #ofBudgets = new Map<string, { requests: number; readonly endsAt: number | null }>();
  #endedAt = 0;
  /** Holds that have not been settled or released. */
  #openHolds = 0;
  #heldMicrocents = 0n;
  /** Grows when all that this process could spend was taken from it: holds of before are of no worth then. */
  #life = 0;

  constructor(options: BillingOptions) {
    this.#options = options;
    this.#contact = new Contact(options.ledger);
  }

  get openHolds(): number {
    return this.#openHolds;
  }

  /** Set aside by all of them together. */
  get heldMicrocents(): bigint {
    return this.#heldMicrocents;
  }

  /** Holds the estimate of a request, or throws `insufficient_credits` 402 (specification §7.6). */
  async hold(bill: Bill): Promise<Hold> {
    const { ledger, backlogMax = 10_000 } = this.#options;
    if (ledger.backlog > backlogMax) {
      const message = 'Too many settlements are waiting for the database.';
      throw new ApiError('backend_at_capacity', message, atCap(backlogMax, 1));
    }
    if (this.#contact.isLost && !(await this.#contact.regain())) throw ledgerSilent();
    if (bill.isCovered) return this.#open(bill, { amount: 0n, covered: everything });
    const first = estimate(bill, bill.promptTokens);
    let lack: Lack | undefined =
      bill.budgets !== undefined
        ? await this.#fundAll(bill, bill.budgets, first.amount)
        : (await this.#fund(bill.accountId, first.amount))
          ? undefined
          : 'credit';
    if (lack === undefined) return this.#open(bill, first);
    // The bound from bytes is several times the real count: before a 402 the prompt is counted exactly.
    const counted = await bill.countPrompt();
    if (counted !== undefined && counted < bill.promptTokens) {
      const exact = estimate(bill, counted);
      lack = await this.#fundAll(bill, bill.budgets ?? [], exact.amount);
      if (lack === undefined) return this.#open(bill, exact);
      throw this.#refusal(bill.accountId, exact.amount, lack);
    }
    throw this.#refusal(bill.accountId, first.amount, lack);
  }

  /** Takes up to `amount` for a hold that grows; what there was, maybe after asking the store for more. */
  take(purseId: string, amount: bigint): bigint | Promise<bigint> {
    if (this.reserve(purseId, amount)) {
      this.#options.ledger.left(purseId, this.#free.get(purseId) ?? 0n);
      return amount;
    }
    if (this.#isRefused(purseId)) return this.#takeFree(purseId, amount);
    return this.#slice(purseId, amount).then(
      (slice) => {
        this.#add(purseId, slice);
        if (slice === 0n) this.#refuse(purseId);
        return this.#takeFree(purseId, amount);
      },
      () => this.#takeFree(purseId, amount),
    );
  }

  #takeFree(purseId: string, amount: bigint): bigint {
    const free = this.#free.get(purseId) ?? 0n;
    const taken = free < amount ? (free > 0n ? free : 0n) : amount;
    this.#free.set(purseId, free - taken);
    return taken;
  }

  /** More can be spent than before: a transfer to the account became durable, or a reservation came back; or less. */
  credit(purseId: string, microcents: bigint): void {
    // The ledger tells of credit that the first slice does not hold, maybe in the same moment as it hands that out.
    if (this.#free.has(purseId) || this.#loading.has(purseId)) this.#add(purseId, microcents);
    this.#refusedUntil.delete(purseId);
  }

  /** Takes the amount out of the purse, for a hold or for a debit that is about to be written; false when it is not free. */
  reserve(purseId: string, microcents: bigint): boolean {
    const free = this.#free.get(purseId);
    if (free === undefined || free < microcents) return false;
    this.#free.set(purseId, free - microcents);
    return true;
  }

  /** Microcents that can be held from the purse now; `undefined` before its first request. */
  freeMicrocents(purseId: string): bigint | undefined {
    return this.#free.get(purseId);
  }

  /** The store has declared this process dead: nothing of what was free or held is its own any more. */
  forget(): void {
    this.#life++;
    this.#free.clear();
    this.#refusedUntil.clear();
  }

  /**
   * Holds the amount from every purse of the bill or from none, and says which one lacks it. One after the other: what is
   * asked of the store for one would be gone to somebody else while another was asked for.
   */
  async #fundAll(bill: Bill, budgets: readonly BudgetBill[], amount: bigint): Promise<Lack | undefined> {
    this.#begin(budgets, bill.startedAt);
    const life = this.#life;
    const taken: { readonly purseId: string; readonly life: number }[] = [];
    let lack: Lack | undefined = 'credit';
    try {
      for (const payer of [...budgets, 'credit' as const]) {
        const purseId = payer === 'credit' ? bill.accountId : payer.purse.id;
        lack = payer;
        if (!(await this.#fund(purseId, amount))) return lack;
        taken.push({ purseId, life: this.#life });
      }
      // What was taken first was of a life that is over.
      if (life !== this.#life) throw ledgerSilent();
      lack = undefined;
      return lack;
    } finally {
      if (lack !== undefined) {
        for (const one of taken) if (one.life === this.#life) this.credit(one.purseId, amount);
        this.#end(budgets);
      }
    }
  }

  /** For a hold that grows: as much as every one of the purses has. */
  #takeAll(purseIds: readonly string[], amount: bigint): bigint | Promise<bigint> {
    if (!purseIds.every((purseId) => (this.#free.get(purseId) ?? -1n) >= amount))
      return this.#takeLeast(purseIds, amount);
    for (const purseId of purseIds) void this.take(purseId, amount);
    return amount;
  }

  async #takeLeast(purseIds: readonly string[], amount: bigint): Promise<bigint> {
    const life = this.#life;
    let least = amount;
    const taken: string[] = [];
    for (const purseId of purseIds) {
      const there = await this.take(purseId, least);
      if (life !== this.#life) {
        this.#add(purseId, there); // of the new life, which the hold is not of
        return 0n;
      }
      for (const earlier of taken) this.#add(earlier, least - there);
      least = there;
      taken.push(purseId);
    }
    return least;
  }

  #begin(budgets: readonly BudgetBill[], startedAt: number): void {
    for (const { purse } of budgets) {
      const known = this.#ofBudgets.get(purse.id);
      if (known !== undefined) known.requests++;
      else {
        this.#forgetEnded(startedAt);
        this.#ofBudgets.set(purse.id, { requests: 1, endsAt: purse.endsAt });
      }
    }
  }

  #end(budgets: readonly BudgetBill[]): void {
    for (const { purse } of budgets) this.#ofBudgets.get(purse.id)!.requests--;
  }

  /** Purses of periods that are over, of which nothing is held: as many may have begun as there are budgets. */
  #forgetEnded(now: number): void {
    if (Math.abs(now - this.#endedAt) < endedEveryMs) return;
    this.#endedAt = now;
    for (const [purseId, { requests, endsAt }] of this.#ofBudgets) {
      if (requests > 0 || endsAt === null || endsAt + endedEveryMs > now) continue;
      this.#ofBudgets.delete(purseId);
      this.#options.ledger.release(purseId);
      this.#free.delete(purseId);
      this.#refusedUntil.delete(purseId);
    }
  }

  /** Whether the amount is now held. Nothing is awaited between looking at what is free and taking from it. */
  async #fund(purseId: string, amount: bigint): Promise<boolean> {
    if (this.#loading.has(purseId) || !this.#free.has(purseId)) await this.#load(purseId, amount);
    if (this.reserve(purseId, amount)) {
      this.#options.ledger.left(purseId, this.#free.get(purseId) ?? 0n);
      return true;
    }
    if (this.#isRefused(purseId)) return false;
    this.#add(purseId, await this.#slice(purseId, amount));
    if (this.reserve(purseId, amount)) return true;
    this.#refuse(purseId);
    return false;
  }

  #isRefused(purseId: string): boolean {
    return (this.#refusedUntil.get(purseId) ?? 0) > performance.now();
  }

  /** The first request of a purse fetches it; those that arrive meanwhile wait for the same answer. */
  #load(purseId: string, need: bigint): Promise<void> {
    const running = this.#loading.get(purseId);
    if (running !== undefined) return running;
    const loading = this.#slice(purseId, need)
      .then((slice) => this.#add(purseId, slice))
      .finally(() => this.#loading.delete(purseId));
    this.#loading.set(purseId, loading);
    return loading;
  }

  async #slice(purseId: string, need: bigint): Promise<bigint> {
    try {
      return await this.#contact.watch(this.#options.ledger.slice(purseId, need));
    } catch (error) {
      throw ledgerSilent(error);
    }
  }

  #add(purseId: string, microcents: bigint): void {
    this.#free.set(purseId, (this.#free.get(purseId) ?? 0n) + microcents);
  }

  #refuse(purseId: string): void {
    if (this.#refusedUntil.size > 10_000) this.#refusedUntil.clear();
    this.#refusedUntil.set(purseId, performance.now() + refusalMs);
  }

  #refusal(accountId: string, need: bigint, lack: Lack): ApiError {
    const free = this.#free.get(lack === 'credit' ? accountId : lack.purse.id) ?? 0n;
    const amounts = {
      credits_available_cents: flooredCents(free > 0n ? free : 0n),
      credits_required_cents_estimate: ceiledCents(need),
      topup_url: this.#options.topupUrl(),
    };
    if (lack !== 'credit') return budgetRefusal(lack, amounts);
    return new ApiError(
      'insufficient_credits',
      'The prepaid balance does not cover this request. Add credit, or ask for less with max_tokens.',
      { extra: amounts },
    );
  }

  #open(bill: Bill, { amount, covered }: Estimate): Hold {
    const { ledger, newId, now = Date.now, log } = this.#options;
    this.#openHolds++;
    this.#heldMicrocents += amount;
    const life = this.#life;
    // What was held in an earlier life would be paid out of what belongs to others now (docs/money.md).
    const settle = (row: UsageRow): Promise<'billed' | 'lost'> =>
      life === this.#life || row.costMicrocents === 0n
        ? this.#contact.watch(ledger.settle(row))
        : Promise.resolve('lost');
    const { accountId } = bill;
    const budgets = bill.isCovered ? undefined : bill.budgets;
    const purseIds = budgets === undefined ? undefined : [...budgets.map(({ purse }) => purse.id), accountId];
    const add = (microcents: bigint): void => {
      if (life !== this.#life) return;
      if (purseIds === undefined) this.#add(accountId, microcents);
      else for (const purseId of purseIds) this.#add(purseId, microcents);
    };
    const taken = (microcents: bigint): bigint => {
      this.#heldMicrocents += microcents;
      return microcents;
    };
    const hold = new Hold(bill, amount, covered, {
      open: (request) => ledger.open(request),
      settle,
      take: (more) => {
        if (life !== this.#life) return 0n;
        const there = purseIds === undefined ? this.take(accountId, more) : this.#takeAll(purseIds, more);
        if (typeof there === 'bigint') return taken(there);
        return there.then((later) => {
          if (life === this.#life) return taken(later);
          this.#add(accountId, later); // of the new life, which the hold is not of
          return 0n;
        });
      },
      untake: (microcents) => {
        this.#heldMicrocents -= microcents;
        add(microcents);
      },
      closed: (remainder) => {
        this.#openHolds--;
        this.#heldMicrocents -= hold.heldMicrocents;
        // A plan's request takes nothing, so nobody has asked for the account's slice.
        if (!bill.isCovered) add(remainder);
        if (budgets !== undefined) this.#end(budgets);
      },
      repair: (row) =>
        repair(
          row,
          {
            settle,
            readBack: (requestId) => ledger.readBack(requestId),
            transfer: (transfer) => ledger.transfer(transfer),
          },
          { newId, now },
          log,
        ),
    });
    return hold;
  }
}

/** Who cannot pay: the account, or a budget. */
type Lack = 'credit' | BudgetBill;

/** Nothing is admitted while what it costs could not be recorded (reliability D1, D3). */
const ledgerSilent = (cause?: unknown): ApiError =>
  new ApiError('internal_error', 'The ledger does not answer.', { retryAfterSeconds: 1, cause });

const everything: Usage = {
  promptTokens: Infinity,
  cachedTokens: Infinity,
  completionTokens: Infinity,
  reasoningTokens: Infinity,
};

interface Estimate {
  readonly amount: bigint;
  /** The largest usage that the amount pays for. */
  readonly covered: Usage;
}

/** Bounded estimate of the fitted request: its input, and the smaller of its output and one step. */
function estimate(bill: Bill, promptTokens: number): Estimate {
  const covered: Usage = {
    promptTokens,
    cachedTokens: 0,
    completionTokens: Math.min(bill.completionTokensMax, holdStepTokens),
    reasoningTokens: 0,
  };
  return { amount: bill.cost(covered), covered };
}
