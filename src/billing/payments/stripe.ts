import type Stripe from 'stripe';

import { eventOf } from './payment-event.ts';
import { PaymentError } from './provider.ts';
import type {
  ChargeInput,
  Checkout,
  CheckoutInput,
  PaidBy,
  PaymentDetails,
  PaymentEvent,
  PaymentProvider,
  PaymentQuestion,
  ProviderTax,
  RefundInput,
} from './provider.ts';
import { readSignedEvent } from './signed-event.ts';

export interface StripeOptions {
  readonly secretKey: string;
  readonly webhookSecret: string;
  /** Replaces Stripe's own address. */
  readonly apiUrl: string | undefined;
  /** Whether Stripe computes the tax within each payment (docs.stripe.com/tax). */
  readonly automaticTax: boolean;
  /** Called once for each API version of events other than the one this was written for. */
  readonly otherVersion: (version: string) => void;
}

/**
 * The API version named in calls to Stripe. Versions with the same word after the dot are compatible with each other
 * (docs.stripe.com/api/versioning). Events arrive in the version that their webhook was created with.
 */
export const apiVersion = '2026-10-28.endive';
const releaseOf = (version: string): string | undefined => version.split('.')[1];
/** Maximum versions remembered as reported; bounded, so that many different names cannot fill memory. */
const versionsMax = 20;

/** Timeout of each try; two more follow a network failure, with the same idempotency key. */
const timeoutMs = 20_000;
const retriesMax = 2;
const pageMax = 100;

/** Payments through Stripe: Checkout for users, PaymentIntents in their absence. Its library is loaded at the first call. */
export class StripeProvider implements PaymentProvider {
  readonly name = 'stripe';
  readonly #options: StripeOptions;
  readonly #versions = new Set<string>();
  #client: Promise<Stripe> | undefined;

  constructor(options: StripeOptions) {
    this.#options = options;
  }

  async createCheckout(input: CheckoutInput): Promise<Checkout> {
    try {
      return await this.#createCheckout(input);
    } catch (error) {
      // The customer was deleted at Stripe: the payer becomes a new customer.
      if (input.customerId === undefined || !isMissing(error, 'customer')) throw error;
      return await this.#createCheckout({
        ...input,
        customerId: undefined,
        idempotencyKey: `${input.idempotencyKey}:anew`,
      });
    }
  }

  async #createCheckout(input: CheckoutInput): Promise<Checkout> {
    const { topupId, accountId, amountCents, currency, successUrl, cancelUrl, idempotencyKey } = input;
    const { keepsCard, customerId, email } = input;
    const { automaticTax } = this.#options;
    const metadata = { topup_id: topupId, account_id: accountId, origin: 'checkout' };
    const payer =
      customerId === undefined
        ? {
            // Stripe charges a kept card on behalf of its customer.
            customer_creation: keepsCard ? ('always' as const) : ('if_required' as const),
            ...(email === undefined ? {} : { customer_email: email }),
          }
        : {
            customer: customerId,
            ...(automaticTax ? { customer_update: { address: 'auto' as const, name: 'auto' as const } } : {}),
          };
    return await this.#call(async (stripe) => {
      const session = await stripe.checkout.sessions.create(
        {
          mode: 'payment',
          client_reference_id: topupId,
          line_items: [
            {
              quantity: 1,
              price_data: {
                currency,
                unit_amount: amountCents,
                product_data: { name: 'Credit' },
                // The credited amount is the paid amount: it includes the tax.
                ...(automaticTax ? { tax_behavior: 'inclusive' as const } : {}),
              },
            },
          ],
          ...payer,
          ...(automaticTax ? { automatic_tax: { enabled: true }, tax_id_collection: { enabled: true } } : {}),
          // Payments, refunds and disputes are all in the ledger's currency.
          adaptive_pricing: { enabled: false },
          payment_intent_data: { ...(keepsCard ? { setup_future_usage: 'off_session' } : {}), metadata },
          metadata,
          success_url: successUrl,
          cancel_url: cancelUrl,
        },
        { idempotencyKey },
      );
      if (session.url === null) throw new PaymentError('declined', 'Stripe created a checkout without a page.');
      return { checkoutId: session.id, checkoutUrl: session.url };
    });
  }

  async charge(input: ChargeInput): Promise<void> {
    const { topupId, accountId, amountCents, currency, customerId, methodId, idempotencyKey } = input;
    await this.#call((stripe) =>
      stripe.paymentIntents.create(
        {
          amount: amountCents,
          currency,
          customer: customerId,
          payment_method: methodId,
          off_session: true,
          confirm: true,
          metadata: { topup_id: topupId, account_id: accountId, origin: 'auto' },
        },
        { idempotencyKey },
      ),
    );
  }

  async refund({ paymentId, amountCents, idempotencyKey }: RefundInput): Promise<string> {
    const refund = await this.#call((stripe) =>
      stripe.refunds.create({ payment_intent: paymentId, amount: amountCents }, { idempotencyKey }),
    );
    return refund.id;
  }

  async paymentDetails(question: PaymentQuestion): Promise<PaymentDetails> {
    const { paymentId, checkoutId } = question;
    const intent = await this.#call((stripe) =>
      stripe.paymentIntents.retrieve(paymentId, { expand: ['payment_method'] }),
    );
    const tax =
      checkoutId === null
        ? await this.#taxOfCharge(question, idOf(intent.customer))
        : await this.#taxOfCheckout(checkoutId);
    return { method: paidBy(intent.payment_method), tax };
  }

  async topupOf(paymentId: string): Promise<string | undefined> {
    try {
      const { metadata } = await this.#call((stripe) => stripe.paymentIntents.retrieve(paymentId));
      return metadata['account_id'] === undefined ? undefined : metadata['topup_id'];
    } catch (error) {
      // It belongs to an account connected to this one, whose events arrive here too.
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  async #taxOfCheckout(checkoutId: string): Promise<ProviderTax | undefined> {
    const session = await this.#call((stripe) =>
      stripe.checkout.sessions.retrieve(checkoutId, { expand: ['total_details.breakdown'] }),
    );
    // As configured when the page was created, not as configured now.
    if (session.automatic_tax?.enabled !== true) return undefined;
    const { amount_tax: cents = 0, breakdown } = session.total_details ?? {};
    return taxOf(
      cents,
      (breakdown?.taxes ?? []).map(({ rate, taxability_reason: reason }) => ({
        name: rate.display_name,
        percent: String(rate.percentage),
        reason,
      })),
    );
  }

  /** Computes the tax of a charge of a kept card, which has no checkout to do it, and enters it into Stripe's reports. */
  async #taxOfCharge(
    { topupId, amountCents, currency }: PaymentQuestion,
    customer: string | undefined,
  ): Promise<ProviderTax | undefined> {
    if (!this.#options.automaticTax || customer === undefined) return undefined;
    const calculation = await this.#call((stripe) =>
      stripe.tax.calculations.create(
        {
          currency,
          customer,
          line_items: [{ amount: amountCents, reference: topupId, tax_behavior: 'inclusive' }],
        },
        { idempotencyKey: `tax:${topupId}` },
      ),
    );
    const { id } = calculation;
    if (id !== null)
      await this.#call((stripe) =>
        stripe.tax.transactions.createFromCalculation(
          { calculation: id, reference: topupId },
          { idempotencyKey: `tax_entered:${topupId}` },
        ),
      ).catch((error: unknown) => {
        // It was entered before, longer ago than Stripe remembers the key.
        if (!(error instanceof PaymentError) || error.code !== 'declined') throw error;
      });
    return taxOf(
      calculation.tax_amount_inclusive,
      calculation.tax_breakdown.map(({ tax_rate_details: rate, taxability_reason: reason }) => ({
        name: rate.tax_type === null ? null : (taxNames[rate.tax_type] ?? null),
        percent: rate.percentage_decimal,
        reason,
      })),
    );
  }

  async readEvent(bytes: Uint8Array, signature: string | undefined, nowMs: number): Promise<PaymentEvent> {
    return this.#known(await readSignedEvent(bytes, signature, this.#options.webhookSecret, nowMs));
  }

  /** Stripe lists the newest first; each day's events are sorted before they are yielded. */
  async *eventsSince(ms: number, signal: AbortSignal): AsyncIterable<PaymentEvent> {
    for (let from = Math.floor(ms / 1000); from * 1000 <= Date.now() && !signal.aborted; from += daySeconds) {
      const events: PaymentEvent[] = [];
      let after: string | undefined;
      do {
        const page = await this.#call((stripe) =>
          stripe.events.list({
            created: { gte: from, lt: from + daySeconds },
            types: [...eventTypes],
            limit: pageMax,
            ...(after === undefined ? {} : { starting_after: after }),
          }),
        );
        for (const event of page.data) events.push(this.#known(eventOf(event)));
        after = page.has_more ? page.data.at(-1)?.id : undefined;
        if (events.length > eventsMax) throw new PaymentError('unavailable', 'Stripe has too many events of one day.');
      } while (after !== undefined && !signal.aborted);
      if (after === undefined) yield* events.reverse();
    }
  }

  async close(): Promise<void> {
    // Its connections are unused sockets of Node's own agent.
  }

  #known(event: PaymentEvent): PaymentEvent {
    const { version } = event;
    if (
      version !== undefined &&
      releaseOf(version) !== releaseOf(apiVersion) &&
      !this.#versions.has(version) &&
      this.#versions.size < versionsMax
    ) {
      this.#versions.add(version);
      this.#options.otherVersion(version);
    }
    return event;
  }

  async #call<Value>(work: (stripe: Stripe) => Promise<Value>): Promise<Value> {
    this.#client ??= this.#open();
    const stripe = await this.#client;
    try {
      return await work(stripe);
    } catch (error) {
      throw paymentErrorOf(error);
    }
  }

  async #open(): Promise<Stripe> {
    const { default: Client } = await import('stripe');
    const { apiUrl, secretKey } = this.#options;
    const url = apiUrl === undefined ? undefined : new URL(apiUrl);
    return new Client(secretKey, {
      apiVersion,
      timeout: timeoutMs,
      maxNetworkRetries: retriesMax,
      telemetry: false,
      ...(url === undefined
        ? {}
        : {
            host: url.hostname,
            port: url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port),
            protocol: url.protocol === 'https:' ? ('https' as const) : ('http' as const),
          }),
    });
  }
}

const daySeconds = 86_400;
/** Maximum for one day, held in memory together. */
const eventsMax = 50_000;

/** Event types that the webhook at Stripe must also be subscribed to (docs/payments.md); a request may name twenty. */
export const eventTypes = [
  'checkout.session.completed',
  'checkout.session.async_payment_succeeded',
  'checkout.session.async_payment_failed',
  'checkout.session.expired',
  'payment_intent.succeeded',
  'payment_intent.payment_failed',
  'refund.created',
  'refund.updated',
  'refund.failed',
  'charge.refund.updated',
  'charge.dispute.created',
  'charge.dispute.funds_withdrawn',
  'charge.dispute.funds_reinstated',
  'charge.dispute.closed',
] as const;

/** Stripe's terms for kinds of taxes. */
const taxNames: Readonly<Record<string, string>> = {
  vat: 'VAT',
  gst: 'GST',
  hst: 'HST',
  pst: 'PST',
  qst: 'QST',
  sales_tax: 'Sales tax',
};

interface TaxPart {
  readonly name: string | null;
  readonly percent: string;
  readonly reason: string | null;
}

function taxOf(cents: number, parts: readonly TaxPart[]): ProviderTax {
  const has = (reason: string): boolean => parts.some((part) => part.reason === reason);
  const treatment =
    cents > 0 ? 'standard' : has('reverse_charge') ? 'reverse_charge' : has('customer_exempt') ? 'exempt' : 'standard';
  const [only, ...others] = parts;
  const isOne = only !== undefined && others.length === 0;
  return { cents, name: isOne ? only.name : null, percent: isOne ? only.percent : null, treatment };
}

function paidBy(method: string | Stripe.PaymentMethod | null): PaidBy {
  if (method === null || typeof method === 'string') return { type: 'card', brand: null, last4: null };
  const { type, card } = method;
  return { type, brand: card?.brand ?? null, last4: card?.last4 ?? null };
}

const idOf = (value: string | { readonly id: string } | null): string | undefined =>
  value === null ? undefined : typeof value === 'string' ? value : value.id;

/** Whether a call failed because the object named by this parameter (or any, if omitted) does not exist. */
function isMissing(error: unknown, parameter?: string): boolean {
  if (!(error instanceof PaymentError) || typeof error.cause !== 'object' || error.cause === null) return false;
  const { code, param } = error.cause as { readonly code?: unknown; readonly param?: unknown };
  return code === 'resource_missing' && (parameter === undefined || param === parameter);
}

/** Stripe's errors carry a status: 402 and other request errors are a definite no; without a status the outcome is unknown. */
function paymentErrorOf(error: unknown): PaymentError {
  if (error instanceof PaymentError) return error;
  const { statusCode, code } = error as { readonly statusCode?: unknown; readonly code?: unknown };
  const isNo =
    typeof statusCode === 'number' &&
    statusCode >= 400 &&
    statusCode < 500 &&
    ![401, 403, 409, 429].includes(statusCode);
  const reason = typeof code === 'string' ? code : 'no reason given';
  return isNo
    ? new PaymentError('declined', `Stripe declined the payment: ${reason}.`, error)
    : new PaymentError('unavailable', `Stripe rejected the call: ${reason}.`, error);
}
