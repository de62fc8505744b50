/** The payment provider of this service: Stripe, or the built-in one for demonstrations and tests (docs/payments.md). */

/** A payment that a user makes on a page of the provider. */
export interface CheckoutInput {
  /** Returned in every event about it. */
  readonly topupId: string;
  readonly accountId: string;
  readonly amountCents: number;
  /** In lower case, an ISO 4217 code. */
  readonly currency: string;
  /** Where the user is sent afterwards. */
  readonly successUrl: string;
  readonly cancelUrl: string;
  /** The card may be charged later in its owner's absence: requested with automatic top-ups, and never otherwise. */
  readonly keepsCard: boolean;
  /** The payer, where the provider knows them by a kept card. */
  readonly customerId: string | undefined;
  /** The payer's address, where the account has one. */
  readonly email: string | undefined;
  /** Calls with the same key make one checkout. */
  readonly idempotencyKey: string;
}

export interface Checkout {
  readonly checkoutId: string;
  readonly checkoutUrl: string;
}

/** A payment with a saved method, without the user present. */
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

/** A payment that has arrived, identified for a receipt. */
export interface PaymentQuestion {
  readonly paymentId: string;
  readonly topupId: string;
  readonly amountCents: number;
  readonly currency: string;
  /** null: the charge of a kept card, without a checkout. */
  readonly checkoutId: string | null;
}

export interface PaymentDetails {
  readonly method: PaidBy;
  /** The tax that the provider has computed, as a part of the amount; undefined: it computes no tax. */
  readonly tax: ProviderTax | undefined;
}

export interface PaidBy {
  /** The provider's term: `card`, `sepa_debit`; `demo`: no money has moved. */
  readonly type: string;
  /** Brand of a card; null where the provider does not say. */
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

/** An event that the provider reports. Amounts are in the smallest unit of the currency. */
export type PaymentNews =
  | {
      readonly kind: 'paid';
      readonly paymentId: string;
      readonly topupId: string;
      readonly accountId: string;
      readonly amountCents: number;
      readonly currency: string;
      /** May be charged again in its owner's absence, as requested with the payment; undefined: it may not. */
      readonly method: { readonly customerId: string; readonly methodId: string } | undefined;
    }
  | { readonly kind: 'failed' | 'expired'; readonly topupId: string; readonly accountId: string }
  | {
      readonly kind: 'refunded' | 'disputed' | 'dispute_won' | 'refund_failed';
      /** Id of the refund or the dispute. */
      readonly returnId: string;
      readonly paymentId: string;
      readonly amountCents: number;
      readonly currency: string;
    }
  /** Of a kind that matters here, without what has to be known of it. `paymentId`: where it is a refund or a dispute. */
  | { readonly kind: 'unreadable'; readonly paymentId: string | undefined }
  /** Nothing that concerns this service. */
  | { readonly kind: 'other' };

export interface PaymentEvent {
  readonly id: string;
  /** The provider's term for it. */
  readonly type: string;
  /** Milliseconds since 1970, by the provider's clock. */
  readonly createdAt: number;
  /** Version of the provider's API that the event is written in; undefined: not stated. */
  readonly version: string | undefined;
  readonly news: PaymentNews;
}

/** Every method rejects with `PaymentError`; two calls with one idempotency key take effect once. */
export interface PaymentProvider {
  readonly name: 'stripe' | 'demo';
  createCheckout(input: CheckoutInput): Promise<Checkout>;
  /** Resolves when the charge was accepted: an event reports whether it is paid. */
  charge(input: ChargeInput): Promise<void>;
  /** Resolves with the refund's id: an event reports that it has happened. */
  refund(input: RefundInput): Promise<string>;
  /** How a payment was made. `unavailable`: repeat the call later. */
  paymentDetails(question: PaymentQuestion): Promise<PaymentDetails>;
  /**
   * The top-up that a payment was made for, as it is labelled at the provider; undefined: another product's payment. `unavailable`:
   * it cannot be said now.
   */
  topupOf(paymentId: string): Promise<string | undefined>;
  /** Reads a webhook call: `refused` unless these very bytes were signed with the shared secret, within five minutes. */
  readEvent(bytes: Uint8Array, signature: string | undefined, nowMs: number): Promise<PaymentEvent>;
  /** Events since a time, the oldest first; bounded by the provider's memory, some thirty days. */
  eventsSince(ms: number, signal: AbortSignal): AsyncIterable<PaymentEvent>;
  close(): Promise<void>;
}

/**
 * - `refused`: the event is not the provider's, or no event, or too old.
 * - `declined`: a definite no; a repeated call gets the same.
 * - `unavailable`: the outcome is unknown; repeating the call, with the same idempotency key, is safe.
 */
export class PaymentError extends Error {
  override readonly name = 'PaymentError';
  readonly code: 'refused' | 'declined' | 'unavailable';

  constructor(code: PaymentError['code'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}
