import { randomBase62 } from '../../accounts/base62.ts';
import { isTimeZone } from '../../platform/calendar/months.ts';
import { uuidText } from '../../platform/ids/uuid.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { NewReceipt, UncorrectedReturn, UnreceiptedPayment } from '../../store/repositories/receipts.ts';
import type { InvoiceSettings } from './invoices.ts';
import { methodText, readReceipt, recordedMethod, taxOfPart, taxOfPayment, totalCentsOf } from './receipt.ts';
import type { ComputedTax, PaidBy, ReceiptData } from './receipt.ts';
import type { Customer } from './statement.ts';

/** What the provider reports about a payment. */
export interface PaymentFacts {
  readonly method: PaidBy;
  readonly tax: ComputedTax | undefined;
}

export interface ReceiptServices {
  readonly repositories: Repositories;
  readonly settings: () => InvoiceSettings;
  readonly timeZoneOf: (accountId: string) => Promise<string>;
  readonly buyerOf: (account: { readonly id: string; readonly name: string }) => Promise<Customer>;
  /**
   * Asks the provider how a payment was made. undefined: the provider was not asked, because another one is in use now, or it does not
   * know. `later`: it does not answer, and the receipt has to wait.
   */
  readonly factsOf: (
    topup: NonNullable<UnreceiptedPayment['topup']>,
    amountMicrocents: bigint,
  ) => Promise<PaymentFacts | undefined | 'later'>;
  /** Called when there is an event to announce. */
  readonly issued: () => void;
  /** Generates UUIDv7s. */
  readonly newId: () => Uint8Array;
  readonly now: () => number;
}

const atOnce = 50;
/** Movements become visible slightly after their time, and clocks differ. */
const overlapMs = 86_400_000;

/**
 * Issues a receipt for each payment, and a credit note for each return of a payment with a receipt. Missing ones are derived from the
 * ledger, so nothing is lost if a process dies, and the database rejects duplicates.
 */
export class Receipts {
  readonly #services: ReceiptServices;
  /** All payments before this time have receipts. */
  #completeUntil: number | undefined;
  #isWanted = false;

  constructor(services: ReceiptServices) {
    this.#services = services;
  }

  /** A payment has arrived: a run in progress repeats. */
  want(): void {
    this.#isWanted = true;
  }

  async issueDue(signal: AbortSignal): Promise<void> {
    do {
      this.#isWanted = false;
      await this.#issueDue(signal);
    } while (this.#isWanted && !signal.aborted);
  }

  async #issueDue(signal: AbortSignal): Promise<void> {
    const { repositories, now, issued } = this.#services;
    const begun = now();
    const since = Math.max(await repositories.receiptsSince({}), this.#completeUntil ?? 0);
    let isAny = false;
    let isWaiting = false;
    let after: { readonly at: number; readonly transferId: Uint8Array } | undefined;
    do {
      const due: readonly UnreceiptedPayment[] = await repositories.listUnreceipted({
        since,
        limit: atOnce,
        ...(after === undefined ? {} : { after }),
      });
      for (const payment of due) {
        if (signal.aborted) return;
        // An unavailable provider is not asked again for each payment; payments without a provider do not wait for it.
        const outcome = isWaiting && payment.topup !== null ? 'later' : await this.#issue(payment);
        if (outcome === 'later') isWaiting = true;
        else isAny = outcome || isAny;
      }
      after = due.length === atOnce ? due.at(-1) : undefined;
    } while (after !== undefined);
    if (!isWaiting) this.#completeUntil = begun - overlapMs;
    for (;;) {
      const returns = await repositories.listUncorrectedReturns({ limit: atOnce });
      let isNew = false;
      for (const one of returns) isNew = (await this.#correct(one)) || isNew;
      isAny ||= isNew;
      if (!isNew || signal.aborted) break;
    }
    if (isAny) issued();
  }

  async #issue(payment: UnreceiptedPayment): Promise<boolean | 'later'> {
    const { settings, timeZoneOf, buyerOf, factsOf } = this.#services;
    const { topup, accountId, amountMicrocents } = payment;
    const facts = topup === null ? undefined : await factsOf(topup, amountMicrocents);
    if (facts === 'later') return 'later';
    const { seller, tax } = settings();
    const account = { id: accountId, name: payment.accountName };
    const buyer = await buyerOf(account);
    const timeZone = await timeZoneOf(accountId);
    const totalCents = totalCentsOf(amountMicrocents);
    const method =
      topup === null
        ? recordedMethod
        : methodText(facts?.method ?? { type: topup.provider === 'demo' ? 'demo' : 'card', brand: null, last4: null });
    return await this.#store(
      {
        kind: 'receipt',
        transferId: payment.transferId,
        provider: null,
        returnId: null,
        corrects: '',
        topupId: topup?.id ?? null,
      },
      {
        version: 1,
        currency: 'USD',
        timeZone: isTimeZone(timeZone) ? timeZone : 'UTC',
        seller,
        buyer,
        account,
        paidAt: payment.at,
        method,
        origin: topup?.origin ?? 'recorded',
        topupId: topup?.id ?? null,
        paymentId: topup?.paymentId ?? null,
        // For a top-up, the reference is its id.
        reference: topup === null ? payment.reference : null,
        totalMicrocents: String(amountMicrocents),
        totalCents,
        tax: taxOfPayment(totalCents, facts?.tax, tax, buyer),
        corrects: null,
      },
    );
  }

  /** Issues a correction with the parties and tax of the document that it corrects. */
  async #correct({
    provider,
    returnId,
    recorded,
    kind,
    amountMicrocents,
    at,
    due,
    corrects,
  }: UncorrectedReturn): Promise<boolean> {
    const before = readReceipt(corrects);
    const totalCents = totalCentsOf(amountMicrocents);
    return await this.#store(
      { kind: due, transferId: null, provider, returnId, corrects: corrects.id, topupId: corrects.topupId },
      {
        ...before,
        paidAt: at,
        ...(recorded === undefined
          ? { paymentId: returnId }
          : { paymentId: null, method: recordedMethod, reference: recorded.reference }),
        totalMicrocents: String(amountMicrocents),
        totalCents,
        tax: taxOfPart(before.tax, totalCents, before.totalCents),
        corrects: { number: corrects.number, why: kind },
      },
    );
  }

  async #store(
    row: Pick<NewReceipt, 'kind' | 'transferId' | 'provider' | 'returnId' | 'corrects' | 'topupId'>,
    data: ReceiptData,
  ): Promise<boolean> {
    const { repositories, settings, newId, now } = this.#services;
    const at = now();
    return await repositories.issueReceipt({
      receipt: {
        ...row,
        id: `rcpt_${randomBase62(12)}`,
        accountId: data.account.id,
        totalMicrocents: BigInt(data.totalMicrocents),
        method: data.method,
        data: JSON.stringify(data),
        noticeId: `evt_${uuidText(newId())}`,
      },
      year: new Date(at).getUTCFullYear(),
      prefix: settings().prefix,
      at,
    });
  }
}
