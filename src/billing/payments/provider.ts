/** The payment provider of this service: Stripe, or the built-in one for demonstrations and tests (docs/payments.md). */

/** A payment that a user makes on a page of the provider. */
export interface CheckoutInput {
  /** Returned in every event about the checkout. */
  readonly topupId: string;
  readonly accountId: string;
  readonly amountCents: number;
  /** A lowercase ISO 4217 code. */
  readonly currency: string;
  /** Where the user is redirected afterwards. */
  readonly successUrl: string;
  readonly cancelUrl: string;
  /** The card may be charged later without its owner present: requested with automatic top-ups, and never otherwise. */
  readonly keepsCard: boolean;
  /** The payer, if a kept card identifies them to the provider. */
  readonly customerId: string | undefined;
  /** The payer's email address, if the account has one. */
  readonly email: string | undefined;
  /** Calls with the same key create one checkout. */
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
  /** The tax computed by the provider, included in the amount; undefined: it computes no tax. */
  readonly tax: ProviderTax | undefined;
}

export interface PaidBy {
  /** The provider's term: `card`, `sepa_debit`; `demo`: no money has moved. */
  readonly type: string;
  /** Brand of a card; null if not stated. */
  readonly brand: string | null;
  /** The last digits of its number. */
  readonly last4: string | null;
}

export interface ProviderTax {
  readonly cents: number;
  /** null: several combined. */
  readonly name: string | null;
  /** In percent, as formatted by the provider; null: several combined. */
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
      /** Set if it may be charged again without its owner present, as requested with the payment. */
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
  /** A relevant event without the required fields. `paymentId` is set if it is a refund or a dispute. */
  | { readonly kind: 'unreadable'; readonly paymentId: string | undefined }
  /** Does not concern this service. */
  | { readonly kind: 'other' };

export interface PaymentEvent {
  readonly id: string;
  /** The provider's term for it. */
  readonly type: string;
  /** Milliseconds since 1970, by the provider's clock. */
  readonly createdAt: number;
  /** The provider's API version of the event; undefined: not stated. */
  readonly version: string | undefined;
  readonly news: PaymentNews;
}

/** Every method rejects with `PaymentError`; two calls with the same idempotency key take effect once. */
export interface PaymentProvider {
  readonly name: 'stripe' | 'demo';
  createCheckout(input: CheckoutInput): Promise<Checkout>;
  /** Resolves when the charge was accepted; an event reports whether it was paid. */
  charge(input: ChargeInput): Promise<void>;
  /** Resolves with the refund's id; an event reports when it has happened. */
  refund(input: RefundInput): Promise<string>;
  /** How a payment was made. `unavailable`: repeat the call later. */
  paymentDetails(question: PaymentQuestion): Promise<PaymentDetails>;
  /**
   * The top-up that a payment was made for, according to its label at the provider; undefined: another product's payment. `unavailable`:
   * unknown at the moment.
   */
  topupOf(paymentId: string): Promise<string | undefined>;
  /** Reads a webhook call: `refused` unless exactly these bytes were signed with the shared secret, within five minutes. */
  readEvent(bytes: Uint8Array, signature: string | undefined, nowMs: number): Promise<PaymentEvent>;
  /** Events since a time, oldest first; limited to what the provider keeps, about thirty days. */
  eventsSince(ms: number, signal: AbortSignal): AsyncIterable<PaymentEvent>;
  close(): Promise<void>;
}

/**
 * Error codes:
 *
 * - `refused`: the event is not from the provider, is not an event, or is too old.
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
