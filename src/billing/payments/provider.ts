/** Who takes payments for this service: Stripe, or the built-in one for demonstrations and tests (docs/payments.md). */

/** A payment that a person makes on a page of the provider. */
export interface CheckoutInput {
  /** Comes back in every event about it. */
  readonly topupId: string;
  readonly accountId: string;
  readonly amountCents: number;
  /** In lower case, as ISO 4217 has it. */
  readonly currency: string;
  /** Where the person is sent afterwards. */
  readonly successUrl: string;
  readonly cancelUrl: string;
  /** The card may be charged later while its owner is away: asked for with automatic top-ups, and never otherwise. */
  readonly keepsCard: boolean;
  /** Who pays, where the provider knows them by a card that was kept. */
  readonly customerId: string | undefined;
  /** Of whoever pays, as far as the account says. */
  readonly email: string | undefined;
  /** The same key twice makes one checkout. */
  readonly idempotencyKey: string;
}

export interface Checkout {
  readonly checkoutId: string;
  readonly checkoutUrl: string;
}

/** A payment with a method that was saved; nobody is there. */
export interface ChargeInput {
  readonly topupId: string;
  readonly accountId: string;
  readonly amountCents: number;
  readonly currency: string;
  readonly customerId: string;
  readonly methodId: string;
  readonly idempotencyKey: string;
}

export interface RefundInput {
  readonly paymentId: string;
  readonly amountCents: number;
  readonly idempotencyKey: string;
}

/** A payment that has arrived, as a receipt asks after it. */
export interface PaymentQuestion {
  readonly paymentId: string;
  readonly topupId: string;
  readonly amountCents: number;
  readonly currency: string;
  /** null: no checkout, the charge of a card that was kept. */
  readonly checkoutId: string | null;
}

export interface PaymentDetails {
  readonly method: PaidBy;
  /** What the provider has computed, as a part of the amount; undefined: it computes no tax. */
  readonly tax: ProviderTax | undefined;
}

export interface PaidBy {
  /** The provider's word: `card`, `sepa_debit`; `demo`: no money has moved. */
  readonly type: string;
  /** Of a card; null where the provider does not say. */
  readonly brand: string | null;
  /** The last digits of its number. */
  readonly last4: string | null;
}

export interface ProviderTax {
  readonly cents: number;
  /** null: several together. */
  readonly name: string | null;
  /** In percent, as the provider writes it; null: several together. */
  readonly percent: string | null;
  readonly treatment: 'standard' | 'exempt' | 'reverse_charge';
}

/** What the provider says has happened. Amounts are in the smallest unit of the currency. */
export type PaymentNews =
  | {
      readonly kind: 'paid';
      readonly paymentId: string;
      readonly topupId: string;
      readonly accountId: string;
      readonly amountCents: number;
      readonly currency: string;
      /** May be charged again while its owner is away, as was asked for when it was paid; undefined: it may not. */
      readonly method: { readonly customerId: string; readonly methodId: string } | undefined;
    }
  | { readonly kind: 'failed' | 'expired'; readonly topupId: string; readonly accountId: string }
  | {
      readonly kind: 'refunded' | 'disputed' | 'dispute_won' | 'refund_failed';
      /** Of the refund or the dispute. */
      readonly returnId: string;
      readonly paymentId: string;
      readonly amountCents: number;
      readonly currency: string;
    }
  /** Nothing that concerns this service. */
  | { readonly kind: 'other' };

export interface PaymentEvent {
  readonly id: string;
  /** The provider's word for it. */
  readonly type: string;
  /** Milliseconds since 1970, by the provider's clock. */
  readonly createdAt: number;
  /** Of the provider's API, in which the event is written; undefined: it does not say. */
  readonly version: string | undefined;
  readonly news: PaymentNews;
}

/** Every method rejects with `PaymentError`; a call that was sent twice with one idempotency key has happened once. */
export interface PaymentProvider {
  readonly name: 'stripe' | 'demo';
  createCheckout(input: CheckoutInput): Promise<Checkout>;
  /** Resolves when the charge was taken on: whether it is paid, an event tells. */
  charge(input: ChargeInput): Promise<void>;
  /** Resolves with the refund's id: that it has happened, an event tells. */
  refund(input: RefundInput): Promise<string>;
  /** How a payment was made. `unavailable`: the same again, later. */
  paymentDetails(question: PaymentQuestion): Promise<PaymentDetails>;
  /** Reads a call of the provider: `refused` unless these very bytes were signed with the shared secret, within five minutes. */
  readEvent(bytes: Uint8Array, signature: string | undefined, nowMs: number): Promise<PaymentEvent>;
  /** Events that were made since a time, the oldest first; bounded by the provider's memory, some thirty days. */
  eventsSince(ms: number, signal: AbortSignal): AsyncIterable<PaymentEvent>;
  close(): Promise<void>;
}

/**
 * - `refused`: the event is not the provider's, or no event, or too old.
 * - `declined`: no; the same again is no as well.
 * - `unavailable`: nobody knows; the same again, with the same idempotency key, is safe.
 */
export class PaymentError extends Error {
  override readonly name = 'PaymentError';
  readonly code: 'refused' | 'declined' | 'unavailable';

  constructor(code: PaymentError['code'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}
