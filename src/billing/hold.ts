import { costMicrocents, type PricedUsage } from '../catalog/pricing.ts';
import { ApiError } from '../platform/errors.ts';
import type { Usage } from '../generation/event.ts';
import type { Ledger, UsageRow } from '../store/ledger.ts';
import { Deadlines } from '../platform/deadlines.ts';
import type { Deadline } from '../platform/deadlines.ts';
import { budgetsOf, estimate, holdStepTokens } from './bill.ts';
import type { Bill, BudgetBill } from './bill.ts';
import { isCharged } from './endings.ts';

/** What a request used and how it ended; the hold fills in the three amounts, in place. */
export interface Receipt extends UsageRow {
  costMicrocents: bigint;
  unchargedMicrocents: bigint;
  holdMicrocents: bigint;
}

/** The outcome of a settlement. */
export type Settled = 'billed' | 'lost' | { readonly error: unknown };

/** Time limits of holds, shared by the whole process. */
export class HoldLimits {
  /** Requests that run longer are recorded, so that they can be identified after a crash. */
  readonly open = new Deadlines(250);
  /** A settlement that takes longer is lost for the client; the ledger is corrected afterwards (docs/money.md). */
  readonly settle = new Deadlines(settleDeadlineMs);
}

/** What a hold was taken from. */
export interface Funds {
  readonly accountId: string;
  /** A plan pays, so nothing was taken. */
  readonly isOfPlan: boolean;
  /** Held from in addition to the account's credit, if there are any. */
  readonly budgets: readonly BudgetBill[] | undefined;
  /** When it was taken: after this process has lost everything it could spend, it is worthless. */
  readonly epoch: number;
}

/** What all holds share; each tells what it was taken from. */
export interface HoldServices {
  readonly limits: HoldLimits;
  readonly open: Ledger['open'];
  /** Submits the row; calls back once with whether it is durable, or with the error. */
  settle(funds: Funds, row: UsageRow, done: (outcome: Settled) => void): void;
  /** Takes at most this much more; returns a promise if the store must be asked. */
  take(funds: Funds, amount: bigint): bigint | Promise<bigint>;
  /**
   * The same of these budgets instead of those that it was taken from, which keep what they have: `heldMicrocents` of those that are new, and
   * at least this much more of all. undefined: that is not there, and nothing was taken.
   */
  takeFrom(funds: Funds, budgets: Funds['budgets'], heldMicrocents: bigint, more: bigint): Promise<Funds | undefined>;
  /** Gives back to the budgets that only the first has what was taken of them. */
  leave(from: Funds, to: Funds, heldMicrocents: bigint): void;
  /** Returns an amount that was taken for a hold that has ended meanwhile. */
  untake(funds: Funds, amount: bigint): void;
  /** Called once: of the amount held, this much was charged. */
  closed(funds: Funds, heldMicrocents: bigint, charged: bigint): void;
  /** Finds out whether the row was written after all; false: it never will be. Waits as long as the ledger does not answer. */
  decide(row: UsageRow): Promise<boolean>;
  /** Makes the row, or another for the same request, durable in the background; resolves with the amount charged. */
  repair(funds: Funds, row: UsageRow): Promise<bigint>;
}

/** A hold is extended when this many covered tokens are left. */
const marginTokens = 256;
const settleDeadlineMs = 2_000;

/** Money set aside for one request. It ends exactly once, by `settle` or by `close`. */
export class Hold {
  #bill: Bill;
  #funds: Funds;
  readonly #services: HoldServices;
  readonly #openLimit: Deadline;
  #heldMicrocents: bigint;
  #covered: PricedUsage;
  #state: 'open' | 'lost' | 'settled' = 'open';
  /** Its row has been priced, so the amount it holds is fixed. */
  #isClosing = false;

  constructor(bill: Bill, heldMicrocents: bigint, covered: PricedUsage, funds: Funds, services: HoldServices) {
    this.#bill = bill;
    this.#funds = funds;
    this.#heldMicrocents = heldMicrocents;
    this.#covered = covered;
    this.#services = services;
    this.#openLimit = services.limits.open.begin(() => {
      const { id, account, key, model, startedAt } = this.#bill;
      services.open({
        requestId: id,
        accountId: account.id,
        keyId: key.id,
        modelId: model.id,
        startedAt,
        holdMicrocents: this.#heldMicrocents,
      });
    });
  }

  get heldMicrocents(): bigint {
    return this.#heldMicrocents;
  }

  /** Whether the settlement failed; the client is notified. */
  get lost(): boolean {
    return this.#state === 'lost';
  }

  /** Extends the hold ahead of the generation. false: the usage costs more than can be held, and the answer must end here. */
  cover(usage: Usage): boolean | Promise<boolean> {
    const covered = this.#covered;
    const most = this.#bill.completionTokensMax;
    const isAhead = ahead(usage.completionTokens, marginTokens, most) <= covered.completionTokens;
    if (isAhead && usage.promptTokens <= covered.promptTokens) return true;
    const wanted: PricedUsage = {
      promptTokens: Math.max(usage.promptTokens, covered.promptTokens),
      cachedTokens: 0,
      completionTokens: ahead(usage.completionTokens, holdStepTokens, most),
    };
    const missing = costMicrocents(wanted, this.#bill.prices) - this.#heldMicrocents;
    return this.#takeMore(missing, (taken) => this.#extend(usage, wanted, missing, taken));
  }

  /**
   * Switches the hold to another model that serves the request, for the same payers; its prices and lengths apply from here on. The amount
   * held is never less than before, and at least the first step's cost on that model. false: that cannot be held, and the previous bill
   * stays.
   */
  rebind(bill: Bill, promptTokens = bill.promptTokensMax): boolean | Promise<boolean> {
    // A plan pays, regardless of the cost.
    if (bill.plan !== null) {
      this.#bill = bill;
      return true;
    }
    const { amount, covered } = estimate(bill, promptTokens);
    const bind = (taken: bigint): boolean => {
      this.#heldMicrocents += taken;
      if (this.#heldMicrocents < amount) return false;
      this.#bill = bill;
      this.#covered = covered;
      return true;
    };
    const missing = amount - this.#heldMicrocents;
    const budgets = budgetsOf(bill);
    if (!isSame(budgets, this.#funds.budgets))
      return this.#changeFunds(budgets, missing > 0n ? missing : 0n).then(
        (taken) => taken !== undefined && bind(taken),
      );
    return this.#takeMore(missing, bind);
  }

  /** Continues with what was there, at most what is missing; false if the hold ends meanwhile. */
  #takeMore(missing: bigint, then: (taken: bigint) => boolean): boolean | Promise<boolean> {
    const taken = missing > 0n ? this.#services.take(this.#funds, missing) : 0n;
    if (typeof taken === 'bigint') return then(taken);
    return taken.then((later) => {
      if (!this.#isClosing) return then(later);
      this.#services.untake(this.#funds, later);
      return false;
    });
  }

  /** Another model may have budgets of its own. Resolves with what was taken in addition; undefined: the budgets do not cover it. */
  async #changeFunds(budgets: Funds['budgets'], missing: bigint): Promise<bigint | undefined> {
    const [before, heldMicrocents] = [this.#funds, this.#heldMicrocents];
    const funds = await this.#services.takeFrom(before, budgets, heldMicrocents, missing);
    if (funds === undefined) return undefined;
    if (!this.#isClosing) {
      this.#funds = funds;
      this.#services.leave(before, funds, heldMicrocents);
      return missing;
    }
    this.#services.untake(funds, missing);
    this.#services.leave(funds, before, heldMicrocents);
    return undefined;
  }

  #extend(usage: Usage, wanted: PricedUsage, missing: bigint, taken: bigint): boolean {
    this.#heldMicrocents += taken;
    if (taken >= missing) this.#covered = wanted;
    return costMicrocents(usage, this.#bill.prices) <= this.#heldMicrocents;
  }

  /**
   * Makes the charge durable; the answer's last bytes follow after it. Rejects with `internal_error` if that failed. `isKept`: the answer
   * is durable and counts if its charge is, so nothing is said, and nothing refunded, before the ledger has decided.
   */
  settle(receipt: Receipt, isKept = false): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#state !== 'open') throw new Error('a hold is settled once');
      this.#openLimit.end();
      const row = this.#priced(receipt);
      const end = (outcome: Settled): void => {
        if (outcome === 'billed') {
          this.#end(row.costMicrocents);
          resolve();
          return;
        }
        this.#state = 'lost';
        const message = 'The charge for this answer could not be recorded; nothing is charged.';
        reject(new ApiError('internal_error', message, outcome === 'lost' ? {} : { cause: outcome.error }));
      };
      this.#settle(row, (outcome) => {
        if (outcome === 'billed' || !isKept) end(outcome);
        else void this.#services.decide(row).then((isBilled) => end(isBilled ? 'billed' : outcome));
      });
    });
  }

  /** Ends a hold that was not settled because its answer was cut, refused or failed. Does nothing after a settlement. */
  close(receipt: Receipt): Promise<void> {
    if (this.#state === 'settled') return Promise.resolve();
    this.#openLimit.end();
    // After a lost settlement the client was told that it pays nothing; the row says so (docs/money.md, protocol 5).
    const row = this.#priced(receipt);
    return new Promise((resolve) => {
      const closed = (outcome: Settled): void => {
        if (outcome === 'billed') this.#end(row.costMicrocents);
        // The row may or may not exist: repair finds out, and the money stays held until then.
        else this.#repair(row);
        resolve();
      };
      if (this.#state === 'lost') closed('lost');
      else this.#settle(row, closed);
    });
  }

  #repair(row: UsageRow): void {
    this.#state = 'settled';
    void this.#services
      .repair(this.#funds, row)
      .then((charged) => this.#services.closed(this.#funds, this.#heldMicrocents, charged));
  }

  #priced(receipt: Receipt): UsageRow {
    this.#isClosing = true;
    const list = costMicrocents(receipt, this.#bill.prices);
    const charge = isCharged(receipt.ending) ? list : 0n;
    // M2: never above the hold, regardless of what a backend reports.
    receipt.costMicrocents = charge < this.#heldMicrocents ? charge : this.#heldMicrocents;
    receipt.unchargedMicrocents = list - receipt.costMicrocents;
    receipt.holdMicrocents = this.#heldMicrocents;
    return receipt;
  }

  /** Reports the outcome once, after `settleDeadlineMs` at the latest. */
  #settle(row: UsageRow, done: (outcome: Settled) => void): void {
    const { limits } = this.#services;
    let isOver = false;
    const over = (outcome: Settled): void => {
      if (isOver) return;
      isOver = true;
      limit.end();
      done(outcome);
    };
    const limit = limits.settle.begin(() =>
      over({ error: new Error(`no answer of the store within ${settleDeadlineMs} ms`) }),
    );
    try {
      this.#services.settle(this.#funds, row, over);
    } catch (error) {
      over({ error });
    }
  }

  #end(charged: bigint): void {
    this.#state = 'settled';
    this.#services.closed(this.#funds, this.#heldMicrocents, charged);
  }
}

const isSame = (some: Funds['budgets'] = [], others: Funds['budgets'] = []): boolean =>
  some.length === others.length && some.every(({ balance }, index) => balance.id === others[index]!.balance.id);

/** This many more tokens, up to the longest answer; an answer that is already longer has no known end. */
const ahead = (used: number, tokens: number, most: number): number =>
  used > most ? used + tokens : Math.min(used + tokens, most);
