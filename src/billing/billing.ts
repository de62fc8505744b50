import { ApiError, atCap } from '../errors.ts';
import type { Usage } from '../generation/event.ts';
import type { Ledger, UsageRow } from '../store/ledger.ts';
import { holdStepTokens } from './bill.ts';
import type { Bill } from './bill.ts';
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

/** After a refusal an account is refused from memory for so long, so that a broke customer cannot cause a storm. */
const refusalMs = 250;

/** Budgets in memory over the durable ledger: decides in microseconds whether a request is funded. */
export class Billing {
  readonly #options: BillingOptions;
  readonly #contact: Contact;
  /** Microcents that can still be held, by account. Absent until the account's first request. */
  readonly #free = new Map<string, bigint>();
  readonly #loading = new Map<string, Promise<void>>();
  readonly #refusedUntil = new Map<string, number>();
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
    if (await this.#fund(bill.accountId, first.amount)) return this.#open(bill, first);
    // The bound from bytes is several times the real count: before a 402 the prompt is counted exactly.
    const counted = await bill.countPrompt();
    if (counted !== undefined && counted < bill.promptTokens) {
      const exact = estimate(bill, counted);
      if (await this.#fund(bill.accountId, exact.amount)) return this.#open(bill, exact);
      throw this.#refusal(bill.accountId, exact.amount);
    }
    throw this.#refusal(bill.accountId, first.amount);
  }

  /** Takes up to `amount` for a hold that grows; what there was, maybe after asking the store for more. */
  take(accountId: string, amount: bigint): bigint | Promise<bigint> {
    if (this.reserve(accountId, amount)) {
      this.#options.ledger.left(accountId, this.#free.get(accountId) ?? 0n);
      return amount;
    }
    if (this.#isRefused(accountId)) return this.#takeFree(accountId, amount);
    return this.#slice(accountId, amount).then(
      (slice) => {
        this.#add(accountId, slice);
        if (slice === 0n) this.#refuse(accountId);
        return this.#takeFree(accountId, amount);
      },
      () => this.#takeFree(accountId, amount),
    );
  }

  #takeFree(accountId: string, amount: bigint): bigint {
    const free = this.#free.get(accountId) ?? 0n;
    const taken = free < amount ? (free > 0n ? free : 0n) : amount;
    this.#free.set(accountId, free - taken);
    return taken;
  }

  /** More can be spent than before: a transfer to the account became durable, or a reservation came back. */
  credit(accountId: string, microcents: bigint): void {
    // The ledger tells of credit that the first slice does not hold, maybe in the same moment as it hands that out.
    if (this.#free.has(accountId) || this.#loading.has(accountId)) this.#add(accountId, microcents);
    this.#refusedUntil.delete(accountId);
  }

  /** Takes the amount out of the budget, for a hold or for a debit that is about to be written; false when it is not free. */
  reserve(accountId: string, microcents: bigint): boolean {
    const free = this.#free.get(accountId);
    if (free === undefined || free < microcents) return false;
    this.#free.set(accountId, free - microcents);
    return true;
  }

  /** Microcents that the account can hold now; `undefined` before its first request. */
  freeMicrocents(accountId: string): bigint | undefined {
    return this.#free.get(accountId);
  }

  /** The store has declared this process dead: nothing of what was free or held is its own any more. */
  forget(): void {
    this.#life++;
    this.#free.clear();
    this.#refusedUntil.clear();
  }

  /** Whether the amount is now held. Nothing is awaited between looking at a free balance and taking from it. */
  async #fund(accountId: string, amount: bigint): Promise<boolean> {
    if (this.#loading.has(accountId) || !this.#free.has(accountId)) await this.#load(accountId, amount);
    if (this.reserve(accountId, amount)) {
      this.#options.ledger.left(accountId, this.#free.get(accountId) ?? 0n);
      return true;
    }
    if (this.#isRefused(accountId)) return false;
    this.#add(accountId, await this.#slice(accountId, amount));
    if (this.reserve(accountId, amount)) return true;
    this.#refuse(accountId);
    return false;
  }

  #isRefused(accountId: string): boolean {
    return (this.#refusedUntil.get(accountId) ?? 0) > performance.now();
  }

  /** The first request of an account fetches its budget; those that arrive meanwhile wait for the same answer. */
  #load(accountId: string, need: bigint): Promise<void> {
    const running = this.#loading.get(accountId);
    if (running !== undefined) return running;
    const loading = this.#slice(accountId, need)
      .then((slice) => this.#add(accountId, slice))
      .finally(() => this.#loading.delete(accountId));
    this.#loading.set(accountId, loading);
    return loading;
  }

  async #slice(accountId: string, need: bigint): Promise<bigint> {
    try {
      return await this.#contact.watch(this.#options.ledger.slice(accountId, need));
    } catch (error) {
      throw ledgerSilent(error);
    }
  }

  #add(accountId: string, microcents: bigint): void {
    this.#free.set(accountId, (this.#free.get(accountId) ?? 0n) + microcents);
  }

  #refuse(accountId: string): void {
    if (this.#refusedUntil.size > 10_000) this.#refusedUntil.clear();
    this.#refusedUntil.set(accountId, performance.now() + refusalMs);
  }

  #refusal(accountId: string, need: bigint): ApiError {
    const free = this.#free.get(accountId) ?? 0n;
    const available = free > 0n ? free : 0n;
    return new ApiError(
      'insufficient_credits',
      'The prepaid balance does not cover this request. Add credit, or ask for less with max_tokens.',
      {
        extra: {
          credits_available_cents: flooredCents(available),
          credits_required_cents_estimate: ceiledCents(need),
          topup_url: this.#options.topupUrl(),
        },
      },
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
    const add = (microcents: bigint): void => {
      if (life === this.#life) this.#add(bill.accountId, microcents);
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
        const there = this.take(bill.accountId, more);
        if (typeof there === 'bigint') return taken(there);
        return there.then((later) => {
          if (life === this.#life) return taken(later);
          this.#add(bill.accountId, later); // of the new life, which the hold is not of
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
