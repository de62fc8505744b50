import { createHash } from 'node:crypto';

import { uuidText } from '../../platform/ids/uuid.ts';
import { systemAccounts } from '../../store/ledger.ts';
import type { EventToRecord, Topup } from '../../store/repositories/payments.ts';
import { StoreError } from '../../store/store-error.ts';
import { PaymentError } from './provider.ts';
import type { PaymentEvent, PaymentNews, PaymentProvider } from './provider.ts';
import { recordingOf } from './payment-services.ts';
import type { EventOutcome, PaymentServices } from './payment-services.ts';
import { collectOwed, reinstate, reverse } from './returns.ts';

export const microcentsPerCent = 1_000_000n;

export interface TopupInput {
  readonly accountId: string;
  readonly amountCents: number;
  /** Calls with the same key create one top-up. undefined: each call creates one. */
  readonly idempotencyKey: string | undefined;
  readonly successUrl: string;
  readonly cancelUrl: string;
  /** Whether the card is kept for automatic top-ups; undefined: only if they are on. */
  readonly keepsCard: boolean | undefined;
  /** Email address of the payer. */
  readonly email: string | undefined;
  /** Who requested it. */
  readonly by: string;
}

/** Overlap with the previous poll: events are listed slightly after they are created, and clocks differ. */
const overlapMs = 3_600_000;
/** How far back Stripe keeps events. */
const memoryMs = 30 * 86_400_000;
/** Maximum remembered payments of other products. */
const othersMax = 1000;
/** Consecutive events that may fail because of this service before a poll gives up. */
const failuresMax = 10;
/** Stripe delivers for three days; an event about a payment not seen by then is not about one of this service's payments. */
const waitsMs = 3 * 86_400_000;

/** Top-ups of accounts. Only a provider event grants credit, once for each payment (docs/payments.md). */
export class Payments {
  readonly #services: PaymentServices;
  /** Payments of other products, which can be refunded and disputed, too. */
  readonly #others = new Set<string>();

  constructor(services: PaymentServices) {
    this.#services = services;
  }

  get provider(): PaymentProvider {
    return this.#services.provider;
  }

  get currency(): string {
    return this.#services.currency;
  }

  /**
   * Creates a top-up with a payment page. Throws `StoreError` `conflict` when the idempotency key belongs to another amount; `PaymentError`
   * `unavailable` when the provider does not answer: a repeated call finds the same top-up.
   */
  async createTopup(input: TopupInput): Promise<Topup> {
    const { repositories, provider, currency, now, newId } = this.#services;
    const id = newTopupId(newId);
    const topup = await repositories.beginTopup({
      id,
      accountId: input.accountId,
      amountMicrocents: BigInt(input.amountCents) * microcentsPerCent,
      origin: 'checkout',
      provider: provider.name,
      // Keys of automatic top-ups have a different form.
      idempotencyKey: input.idempotencyKey === undefined ? `once:${id}` : `key:${input.idempotencyKey}`,
      successUrl: input.successUrl,
      cancelUrl: input.cancelUrl,
      createdAt: now(),
      by: input.by,
    });
    if (topup.origin !== 'checkout' || topup.amountMicrocents !== BigInt(input.amountCents) * microcentsPerCent)
      throw new StoreError('conflict', 'this idempotency key stands for another top-up');
    if (topup.checkoutUrl !== null || topup.status !== 'pending' || topup.provider !== provider.name) return topup;
    const payer = await this.#payer(input);
    const checkout = await provider.createCheckout({
      topupId: topup.id,
      accountId: topup.accountId,
      amountCents: input.amountCents,
      currency,
      successUrl: topup.successUrl ?? input.successUrl,
      cancelUrl: topup.cancelUrl ?? input.cancelUrl,
      ...payer,
      // Repeating a call that was killed midway returns the same checkout; with another payer the key would be rejected.
      idempotencyKey: `${topup.id}:${createHash('sha256').update(JSON.stringify(payer)).digest('hex').slice(0, 16)}`,
    });
    await repositories.noteCheckout({ id: topup.id, ...checkout });
    return (await repositories.getTopup({ id: topup.id }))!;
  }

  async #payer({ accountId, keepsCard, email }: TopupInput) {
    const { repositories, provider } = this.#services;
    const auto = keepsCard === undefined ? await repositories.getAutoTopup({ accountId }) : undefined;
    const kept = await repositories.getPaymentMethod({ accountId, provider: provider.name });
    return { keepsCard: keepsCard ?? auto?.enabled === true, customerId: kept?.customerId, email };
  }

  /**
   * Handles a webhook call. Throws `PaymentError`: `refused` if it is not from the provider, `unavailable` if it should be repeated later.
   */
  async receive(bytes: Uint8Array, signature: string | undefined): Promise<EventOutcome> {
    const { provider, now, log } = this.#services;
    let event: PaymentEvent;
    try {
      event = await provider.readEvent(bytes, signature, now());
    } catch (error) {
      log('warn', 'payment_event_refused', { reason: error instanceof Error ? error.message : String(error) });
      throw error;
    }
    return await this.apply(event);
  }

  /** Asks the provider for events since the last poll. Resolves with the number of new events. */
  async catchUp(signal: AbortSignal): Promise<number> {
    const { repositories, provider, now, log } = this.#services;
    const begun = now();
    const seen = await repositories.paymentsSeenUntil({ provider: provider.name });
    if (seen === undefined) return 0;
    let found = 0;
    let seenUntil = begun;
    const failures: unknown[] = [];
    const from = Math.max(seen - overlapMs, begun - memoryMs, 0);
    for await (const event of provider.eventsSince(from, signal)) {
      try {
        if ((await this.apply(event)) === 'applied') found++;
      } catch (error) {
        // An event that cannot be applied yet must not block those after it: the next poll begins with it.
        if (!(error instanceof PaymentError)) failures.push(error);
        else if (begun - event.createdAt > waitsMs) {
          await this.#refuse(event, event.type, error.message);
          continue;
        }
        seenUntil = Math.min(seenUntil, event.createdAt);
        log('warn', 'payment_event_waits', { id: event.id, type: event.type });
        if (failures.length >= failuresMax) break;
      }
    }
    if (!signal.aborted && failures.length < failuresMax)
      await repositories.notePaymentsSeen({ provider: provider.name, at: seenUntil });
    if (found > 0) log('warn', 'payment_events_missed', { provider: provider.name, count: String(found) });
    if (failures.length > 0) throw failures[0];
    return found;
  }

  /** Collects what accounts owe for refunds and disputes, as far as their credit has become free. */
  async collectOwed(signal: AbortSignal): Promise<void> {
    if (await collectOwed(this.#services, signal)) this.#services.moved?.();
  }

  /** Applies an authentic event of the provider to the ledger; safe to repeat, here and concurrently elsewhere. */
  async apply(event: PaymentEvent): Promise<EventOutcome> {
    const { repositories, provider } = this.#services;
    const { news } = event;
    if (news.kind === 'other') return 'ignored';
    if ((await repositories.findPaymentEvent({ provider: provider.name, id: event.id })) !== undefined) return 'again';
    switch (news.kind) {
      case 'paid':
        return await this.#credit(event, news);
      case 'failed':
      case 'expired': {
        const topup = await repositories.getTopup({ id: news.topupId, accountId: news.accountId });
        if (topup === undefined) return await this.#refuse(event, news.topupId, 'there is no such top-up');
        const isNew = await repositories.recordPaymentEvent({
          ...this.#record(event, news.topupId),
          topup: { id: topup.id, status: news.kind },
        });
        return isNew ? 'applied' : 'again';
      }
      case 'unreadable':
        if (news.paymentId !== undefined && !(await this.#isKnown(news.paymentId)))
          if ((await this.#topupOf(news.paymentId)) === undefined) return 'ignored';
        throw new PaymentError('refused', 'The event was rejected: its form is unknown.');
      case 'refunded':
      case 'disputed':
      case 'dispute_won':
      case 'refund_failed':
        return this.#reported(await this.#return(event, news));
    }
  }

  async #credit(event: PaymentEvent, news: Extract<PaymentNews, { kind: 'paid' }>): Promise<EventOutcome> {
    const { repositories, ledger, provider, currency, now, newId, log } = this.#services;
    const topup = await repositories.getTopup({ id: news.topupId });
    const fault =
      topup === undefined
        ? 'there is no such top-up'
        : topup.accountId !== news.accountId
          ? 'the top-up is of another account'
          : topup.provider !== provider.name
            ? 'the top-up is of another provider'
            : news.currency !== currency
              ? foreignCurrency(news.currency, currency)
              : topup.amountMicrocents !== BigInt(news.amountCents) * microcentsPerCent
                ? 'the paid amount differs from the requested amount'
                : undefined;
    if (topup === undefined || fault !== undefined) return await this.#refuse(event, news.topupId, fault ?? '');
    if (news.method !== undefined)
      await repositories.savePaymentMethod({
        accountId: topup.accountId,
        provider: provider.name,
        savedAt: now(),
        ...news.method,
      });
    const record = this.#record(event, topup.id);
    const [id, at] = [newId(), now()];
    try {
      const isNew = await ledger.transfer({
        id,
        debitAccount: systemAccounts.cash,
        creditAccount: topup.accountId,
        amountMicrocents: topup.amountMicrocents,
        kind: 'topup',
        idempotencyKey: `payment:${provider.name}:${news.paymentId}`,
        reference: topup.id,
        by: topup.by,
        at,
        recording: [
          recordingOf(record),
          {
            name: 'payment',
            values: [provider.name, news.paymentId, topup.id, topup.accountId, topup.amountMicrocents, id, at],
          },
          { name: 'topup_paid', values: [news.paymentId, at, topup.id] },
        ],
      });
      if (isNew) {
        this.#reported('applied');
        log('info', 'topup_paid', { topup: topup.id, account: topup.accountId });
        return 'applied';
      }
    } catch (error) {
      if (!(error instanceof StoreError) || error.code !== 'conflict') throw error;
      // A duplicate of this event was faster, or this is a second payment of the top-up, or one payment for two top-ups.
      if ((await repositories.findPaymentEvent({ provider: provider.name, id: event.id })) !== undefined)
        return 'again';
      return await this.#refuse(event, topup.id, 'the top-up was paid already, or this payment has paid another one');
    }
    const payment = await repositories.findPayment({ provider: provider.name, id: news.paymentId });
    if (payment?.topupId !== topup.id)
      return await this.#refuse(event, topup.id, 'this payment has paid another top-up');
    // Another type of event has already reported this payment.
    await repositories.recordPaymentEvent({ ...record, outcome: 'again' });
    return 'again';
  }

  #reported(outcome: EventOutcome): EventOutcome {
    if (outcome === 'applied') this.#services.moved?.();
    return outcome;
  }

  async #return(event: PaymentEvent, news: Extract<PaymentNews, { readonly returnId: string }>): Promise<EventOutcome> {
    const { repositories, provider, currency } = this.#services;
    const payment = await repositories.findPayment({ provider: provider.name, id: news.paymentId });
    if (payment === undefined) return await this.#returnUnpaid(event, news);
    const amountMicrocents = BigInt(news.amountCents) * microcentsPerCent;
    if (news.currency !== currency)
      return await this.#refuse(event, news.returnId, foreignCurrency(news.currency, currency));
    if (amountMicrocents > payment.amountMicrocents)
      return await this.#refuse(event, news.returnId, 'the return is larger than the payment');
    const record = this.#record(event, news.returnId);
    const isTaken = news.kind === 'refunded' || news.kind === 'disputed';
    const kind = news.kind === 'refunded' || news.kind === 'refund_failed' ? 'refund' : 'dispute';
    const taken = { kind, id: news.returnId, payment, amountMicrocents } as const;
    return await (isTaken ? reverse : reinstate)(this.#services, taken, record);
  }

  /** Handles a refund or dispute of a payment that has credited nothing. Throws `unavailable` if the payment may still do so. */
  async #returnUnpaid(
    event: PaymentEvent,
    { returnId, paymentId }: Extract<PaymentNews, { readonly returnId: string }>,
  ): Promise<EventOutcome> {
    const { repositories, provider } = this.#services;
    const topupId = await this.#topupOf(paymentId);
    if (topupId === undefined) return 'ignored';
    const topup = await repositories.getTopup({ id: topupId });
    if (topup?.provider !== provider.name)
      return await this.#refuse(event, returnId, 'the top-up that it returns is not here');
    const hasPaidOtherwise = topup.paymentId !== null && topup.paymentId !== paymentId;
    const since = { provider: provider.name, subject: topup.id, since: topup.createdAt };
    if (hasPaidOtherwise || (await repositories.wasPaymentRefused(since)))
      return await this.#refuse(event, returnId, 'the payment that it returns has credited nothing');
    throw new PaymentError('unavailable', `The payment that ${returnId} refers to has not been reported yet.`);
  }

  async #isKnown(paymentId: string): Promise<boolean> {
    const { repositories, provider } = this.#services;
    return (await repositories.findPayment({ provider: provider.name, id: paymentId })) !== undefined;
  }

  /** The purpose of a payment that is not known here; undefined: it belongs to another product on the same provider account. */
  async #topupOf(paymentId: string): Promise<string | undefined> {
    const { provider, log } = this.#services;
    if (this.#others.has(paymentId)) return undefined;
    const topupId = await provider.topupOf(paymentId);
    if (topupId !== undefined) return topupId;
    if (this.#others.size === 0) log('warn', 'payments_of_others', { provider: provider.name, payment: paymentId });
    if (this.#others.size >= othersMax) this.#others.delete(this.#others.values().next().value!);
    this.#others.add(paymentId);
    return undefined;
  }

  /** Records the event, so that it is handled once; nothing moves, and an error is logged. */
  async #refuse(event: PaymentEvent, subject: string, why: string): Promise<EventOutcome> {
    const { repositories, log } = this.#services;
    log('error', 'payment_event_contradicts', { id: event.id, type: event.type, subject, reason: why });
    await repositories.recordPaymentEvent({ ...this.#record(event, subject), outcome: `refused: ${why}` });
    return 'refused';
  }

  #record(event: PaymentEvent, subject: string): EventToRecord {
    const { provider, now } = this.#services;
    return {
      provider: provider.name,
      id: event.id,
      kind: event.type,
      subject: subject.slice(0, 255),
      outcome: 'applied',
      createdAt: event.createdAt,
      receivedAt: now(),
    };
  }
}

const foreignCurrency = (found: string, own: string): string =>
  `it is in ${found.slice(0, 3)}, and this service takes ${own} only: settle it at the payment provider`;

export const newTopupId = (newId: () => Uint8Array): string => `top_${uuidText(newId()).replaceAll('-', '')}`;
