import { randomBase62 } from '../../accounts/base62.ts';
import { uuidText } from '../../platform/ids/uuid.ts';
import type { LedgerSpan } from '../../store/reports/ledger-span.ts';
import type { NewInvoice, OpenPeriod } from '../../store/repositories/invoices.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { endOfPeriod, isTimeZone, monthOf, monthText, startOfMonthIn } from '../../platform/calendar/months.ts';
import { readData } from './invoice-document.ts';
import { creditNoteData, receiptlessAfter, soldOf, statementData, sum } from './statement.ts';
import type { Customer, InvoiceData, Parties, Seller } from './statement.ts';
import { taxFor } from '../../tax/tax.ts';
import type { TaxRules } from '../../tax/tax.ts';

/** The configuration of invoices. */
export interface InvoiceSettings {
  /** null: documents are statements without a seller. */
  readonly seller: Seller | null;
  readonly tax: TaxRules;
  /** Prefix of invoice numbers: `TH-`. */
  readonly prefix: string;
}

export interface InvoiceServices {
  readonly repositories: Repositories;
  readonly settings: () => InvoiceSettings;
  /** Name of the account's time zone. */
  readonly timeZoneOf: (accountId: string) => Promise<string>;
  readonly buyerOf: (account: { readonly id: string; readonly name: string }) => Promise<Customer>;
  /** Generates UUIDv7s. */
  readonly newId: () => Uint8Array;
  readonly now: () => number;
}

/** Delay from the end of a month until its books are closed: by then every clock's requests of the month have been recorded. */
export const settlingMs = 3_600_000;
const accountsAtOnce = 100;
/** Minimum length of a period. */
const periodMinMs = 14 * 86_400_000;

/**
 * Closes the books of accounts month by month, and issues the resulting documents: a statement if there was any movement, and a credit note
 * for each earlier statement whose requests were refunded in the month (docs/invoices.md).
 */
export class Invoices {
  readonly #services: InvoiceServices;
  /** The last account of the previous batch. */
  #after: string | undefined;

  constructor(services: InvoiceServices) {
    this.#services = services;
  }

  /**
   * Processes one batch of accounts, one month each; true: there may be more. Run it in one process at a time; even with two, each period
   * is closed only once.
   */
  async issueDue(): Promise<boolean> {
    const accounts = await this.#open({
      limit: accountsAtOnce,
      ...(this.#after === undefined ? {} : { after: this.#after }),
    });
    let isAnyDue = false;
    for (const account of accounts) isAnyDue = (await this.#closeMonth(account)) || isAnyDue;
    // An account that was due may be due again: repeat the batch until none is due.
    if (isAnyDue) return true;
    this.#after = accounts.length === accountsAtOnce ? accounts.at(-1)!.accountId : undefined;
    return this.#after !== undefined;
  }

  /** Closes every completed month of one account. Resolves with the number closed. */
  async issueFor(accountId: string): Promise<number> {
    for (let closed = 0; ; closed++) {
      const [account] = await this.#open({ accountId, limit: 1 });
      if (account === undefined || !(await this.#closeMonth(account))) return closed;
    }
  }

  #open(request: { readonly limit: number; readonly after?: string; readonly accountId?: string }) {
    return this.#services.repositories.listOpenPeriods({
      ...request,
      closedBefore: this.#services.now() - periodMinMs,
    });
  }

  /** Closes one month; false if it is not over. */
  async #closeMonth(account: OpenPeriod): Promise<boolean> {
    const { repositories, settings, now, newId } = this.#services;
    const { accountId, closedUntil } = account;
    const timeZone = await this.#zone(accountId);
    const from = closedUntil ?? startOfMonthIn(monthOf(account.createdAt, timeZone), timeZone);
    const to = endOfPeriod(from, timeZone);
    const at = now();
    if (to + settlingMs > at) return false;
    const span = await repositories.readLedgerSpan({ accountId, from, to });
    const invoices = isEmpty(span) ? [] : await this.#documents(account, { from, to, timeZone, span });
    // If another process was faster, the next run finds what it left.
    await repositories.closePeriod({
      accountId,
      closedUntil,
      until: to,
      year: new Date(at).getUTCFullYear(),
      prefix: settings().prefix,
      at,
      invoices: invoices.map((invoice) => ({ ...invoice, noticeId: `evt_${uuidText(newId())}` })),
    });
    return true;
  }

  async #documents(
    { accountId, name }: OpenPeriod,
    {
      from,
      to,
      timeZone,
      span,
    }: { readonly from: number; readonly to: number; readonly timeZone: string; readonly span: LedgerSpan },
  ): Promise<readonly Omit<NewInvoice, 'noticeId'>[]> {
    const { repositories, settings, buyerOf } = this.#services;
    const { seller, tax } = settings();
    const account = { id: accountId, name };
    const buyer = await buyerOf(account);
    const parties: Parties = { timeZone, seller, tax: taxFor(tax, buyer), buyer, account };
    const recorded = await this.#balanceBefore(accountId, from);
    const last = await repositories.lastStatement({ accountId });
    const opening = last?.closingMicrocents ?? recorded;
    const { own, earlier } = await this.#refunds(accountId, from, span.refunds);
    // Sold on a statement and refunded: it becomes credit without a receipt again.
    const notes = earlier.map(({ corrects, sold, refunds }) => {
      const microcents = sum(refunds.map((refund) => refund.microcents));
      return { corrects, refunds, sold: soldOf(sold, microcents) };
    });
    const data = statementData(
      span,
      {
        openingMicrocents: opening,
        earlierMicrocents: recorded - opening,
        refundsMicrocents: sum(own.map((refund) => refund.microcents)),
        receiptlessMicrocents:
          (last === undefined ? 0n : receiptlessAfter(readData(last))) + sum(notes.map(({ sold }) => sold)),
      },
      parties,
    );
    const closing = BigInt(data.statement!.closingMicrocents);
    const shared = {
      month: monthText(monthOf(to - 1, timeZone)),
      periodStart: from,
      periodEnd: to,
      closingMicrocents: closing,
    };
    const documentOf = (kind: NewInvoice['kind'], corrects: string, of: InvoiceData) => ({
      ...shared,
      id: `inv_${randomBase62(12)}`,
      kind,
      corrects,
      totalMicrocents: BigInt(of.totalMicrocents),
      data: JSON.stringify(of),
    });
    return [
      documentOf('statement', '', data),
      ...notes.map(({ corrects, refunds, sold }) =>
        documentOf('credit_note', corrects.id, creditNoteData(corrects, refunds, sold, parties)),
      ),
    ];
  }

  /** Splits the refunds into those for requests of this period and those for requests on each earlier statement. */
  async #refunds(accountId: string, from: number, refunds: LedgerSpan['refunds']) {
    const own: LedgerSpan['refunds'][number][] = [];
    const byStatement = new Map<
      string,
      {
        readonly corrects: { readonly id: string; readonly number: string; readonly month: string };
        readonly sold: InvoiceData;
        readonly refunds: LedgerSpan['refunds'][number][];
        readonly until: number;
        readonly since: number;
      }
    >();
    for (const refund of refunds) {
      const { requestEndedAt } = refund;
      if (requestEndedAt === null || requestEndedAt >= from) {
        own.push(refund);
        continue;
      }
      let found = [...byStatement.values()].find(
        ({ since, until }) => since <= requestEndedAt && requestEndedAt < until,
      );
      if (found === undefined) {
        const statement = await this.#services.repositories.statementAt({ accountId, at: requestEndedAt });
        // Charged before statements were kept: there is nothing to correct.
        if (statement === undefined) {
          own.push(refund);
          continue;
        }
        const { id, number, month, periodStart: since, periodEnd: until } = statement;
        found = { corrects: { id, number, month }, sold: readData(statement), refunds: [], since, until };
        byStatement.set(id, found);
      }
      found.refunds.push(refund);
    }
    return { own, earlier: [...byStatement.values()] };
  }

  /** Computed from the ledger: all credits and debits until then, less the cost of requests. */
  async #balanceBefore(accountId: string, at: number): Promise<bigint> {
    const { repositories } = this.#services;
    const usage = await repositories.sumUsage({ accountId, from: 0, to: at });
    return (
      (await repositories.transferredBefore({ accountId, before: at })) - sum(usage.map((one) => one.costMicrocents))
    );
  }

  async #zone(accountId: string): Promise<string> {
    const timeZone = await this.#services.timeZoneOf(accountId);
    return isTimeZone(timeZone) ? timeZone : 'UTC';
  }
}

const isEmpty = ({ usage, movements }: LedgerSpan): boolean => usage.length === 0 && movements.length === 0;
