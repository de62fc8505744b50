import { randomBytes, type KeyObject } from 'node:crypto';

import { uuidText } from '../../platform/ids/uuid.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { DemoObject, NewDemoObject } from '../../store/repositories/demo-payments.ts';
import { readEvent } from './payment-event.ts';
import { PaymentError } from './provider.ts';
import type {
  ChargeInput,
  Checkout,
  CheckoutInput,
  PaymentDetails,
  PaymentEvent,
  PaymentProvider,
  RefundInput,
} from './provider.ts';
import type { DemoOutcome } from './demo-outcomes.ts';
import { readSignedEvent, signEvent } from './signed-event.ts';

/** How late the events of the outcome `delay` arrive. */
export const demoDelayMs = 5_000;
const changeTriesMax = 10;
const pageMax = 100;

export interface DemoCheckout {
  readonly id: string;
  readonly topupId: string;
  readonly accountId: string;
  readonly amountCents: number;
  readonly currency: string;
  readonly successUrl: string;
  readonly cancelUrl: string;
  readonly keepsCard: boolean;
  readonly status: 'open' | 'paid' | 'failed' | 'expired' | 'refunded' | 'disputed' | 'lost';
  readonly paymentId: string | undefined;
  readonly disputeId: string | undefined;
  readonly refundedCents: number;
  /** Refunds that have not failed, newest last. */
  readonly refunds: readonly DemoRefund[];
}

interface DemoRefund {
  readonly id: string;
  readonly amountCents: number;
}

export interface DemoOptions {
  readonly repositories: Pick<
    Repositories,
    'makeDemoObject' | 'getDemoObject' | 'changeDemoObject' | 'listDemoObjects'
  >;
  readonly now: () => number;
  readonly newId: () => Uint8Array;
  /** Signs events. */
  readonly secret: KeyObject;
  readonly accountUrl: () => string;
  /** The webhook; it must authenticate calls. */
  readonly deliver: (bytes: Uint8Array, signature: string) => Promise<void>;
}

/** Method ids that the built-in provider knows: a card that pays, and one that is declined from then on. */
export const demoMethods = { good: 'pm_demo_good', declined: 'pm_demo_declined' } as const;

/**
 * A payment provider without money. It keeps checkouts, payments and events like an external one, signs its events, and calls the webhook
 * with them: the code that credits an account cannot distinguish it from Stripe.
 */
export class DemoProvider implements PaymentProvider {
  readonly name = 'demo';
  readonly #options: DemoOptions;
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #delivering = new Set<Promise<void>>();

  constructor(options: DemoOptions) {
    this.#options = options;
  }

  async createCheckout(input: CheckoutInput): Promise<Checkout> {
    const { topupId, accountId, amountCents, currency, successUrl, cancelUrl, keepsCard } = input;
    // Knowing the page's address is enough to pay there, because it cannot be guessed.
    const id = `cs_demo_${randomBytes(16).toString('hex')}`;
    const body: DemoCheckout = {
      id,
      topupId,
      accountId,
      amountCents,
      currency,
      successUrl,
      cancelUrl,
      keepsCard,
      status: 'open',
      paymentId: undefined,
      disputeId: undefined,
      refundedCents: 0,
      refunds: [],
    };
    const made = await this.#options.repositories.makeDemoObject(
      this.#object('checkout', id, body, `checkout:${input.idempotencyKey}`),
    );
    return { checkoutId: made.id, checkoutUrl: `${this.#options.accountUrl()}/v1/payments/demo/${made.id}` };
  }

  async charge(input: ChargeInput): Promise<void> {
    const { topupId, accountId, amountCents, currency } = input;
    const id = `cs_demo_${randomBytes(16).toString('hex')}`;
    const isGood = input.methodId === demoMethods.good;
    const body: DemoCheckout = {
      id,
      topupId,
      accountId,
      amountCents,
      currency,
      successUrl: '',
      cancelUrl: '',
      keepsCard: false,
      status: 'open',
      paymentId: undefined,
      disputeId: undefined,
      refundedCents: 0,
      refunds: [],
    };
    const made = await this.#options.repositories.makeDemoObject(
      this.#object('checkout', id, body, `charge:${input.idempotencyKey}`),
    );
    await this.play(made.id, isGood ? 'success' : 'failure', 'auto');
  }

  async refund({ paymentId, amountCents, idempotencyKey }: RefundInput): Promise<string> {
    const refundId = `re_demo_${uuidText(this.#options.newId())}`;
    const made = await this.#options.repositories.makeDemoObject(
      this.#object('refund', refundId, { paymentId, amountCents }, `refund:${idempotencyKey}`),
    );
    const payment = await this.#options.repositories.getDemoObject({ id: paymentId });
    if (payment === undefined) throw new PaymentError('declined', 'There is no such payment.');
    const { checkoutId } = JSON.parse(payment.body) as { readonly checkoutId: string };
    await this.#refund(checkoutId, made.id, amountCents);
    return made.id;
  }

  paymentDetails(): Promise<PaymentDetails> {
    return Promise.resolve({ method: { type: 'demo', brand: null, last4: null }, tax: undefined });
  }

  /** All of its payments belong to this service. */
  async topupOf(paymentId: string): Promise<string> {
    const { repositories } = this.#options;
    const payment = await repositories.getDemoObject({ id: paymentId });
    if (payment === undefined) throw new PaymentError('unavailable', `There is no payment ${paymentId} yet.`);
    const { checkoutId } = JSON.parse(payment.body) as { readonly checkoutId: string };
    return (await this.getCheckout(checkoutId))!.topupId;
  }

  async readEvent(bytes: Uint8Array, signature: string | undefined, nowMs: number): Promise<PaymentEvent> {
    return await readSignedEvent(bytes, signature, demoEventSecret(this.#options.secret), nowMs);
  }

  async *eventsSince(ms: number, signal: AbortSignal): AsyncIterable<PaymentEvent> {
    let after: string | undefined;
    while (!signal.aborted) {
      const page = await this.#options.repositories.listDemoObjects({
        kind: 'event',
        from: ms,
        limit: pageMax,
        ...(after === undefined ? {} : { after }),
      });
      for (const { body } of page) yield readEvent(body);
      after = page.at(-1)?.id;
      if (page.length < pageMax) return;
    }
  }

  async getCheckout(id: string): Promise<DemoCheckout | undefined> {
    const found = await this.#options.repositories.getDemoObject({ id });
    return found?.kind === 'checkout' ? (JSON.parse(found.body) as DemoCheckout) : undefined;
  }

  /** Simulates an outcome; one that does not fit the state of the checkout is declined. Resolves when the webhook has answered. */
  async play(id: string, outcome: DemoOutcome, origin: 'checkout' | 'auto' = 'checkout'): Promise<DemoCheckout> {
    switch (outcome) {
      case 'success':
      case 'duplicate':
      case 'delay':
        return await this.#pay(id, outcome, origin);
      case 'failure':
        return await this.#end(id, 'failed', origin);
      case 'expire':
        return await this.#end(id, 'expired', origin);
      case 'refund': {
        const checkout = await this.getCheckout(id);
        const left = checkout === undefined ? 0 : checkout.amountCents - checkout.refundedCents;
        return await this.#refund(id, `re_demo_${uuidText(this.#options.newId())}`, left);
      }
      case 'refund_failure':
        return await this.#change(id, (checkout) => {
          const refunds = checkout.refunds;
          const failed = refunds.at(-1);
          if (failed === undefined) throw unfit(checkout, outcome);
          const object = { ...refundOf(checkout, failed), status: 'failed', failure_reason: 'unknown' };
          const events = [this.#event('refund.updated', object), this.#event('refund.failed', object)];
          const status = checkout.status === 'refunded' ? 'paid' : checkout.status;
          const refundedCents = checkout.refundedCents - failed.amountCents;
          return [{ ...checkout, status, refundedCents, refunds: refunds.slice(0, -1) }, events];
        });
      case 'dispute':
        return await this.#change(id, (checkout) => {
          if (checkout.status !== 'paid') throw unfit(checkout, outcome);
          const disputeId = `dp_demo_${uuidText(this.#options.newId())}`;
          const object = disputeOf({ ...checkout, disputeId }, 'needs_response');
          const events = [
            this.#event('charge.dispute.created', object),
            this.#event('charge.dispute.funds_withdrawn', object),
          ];
          return [{ ...checkout, status: 'disputed', disputeId }, events];
        });
      case 'win':
      case 'lose':
        return await this.#change(id, (checkout) => {
          if (checkout.status !== 'disputed') throw unfit(checkout, outcome);
          const isWon = outcome === 'win';
          const event = this.#event('charge.dispute.closed', disputeOf(checkout, isWon ? 'won' : 'lost'));
          return [{ ...checkout, status: isWon ? 'paid' : 'lost' }, [event]];
        });
    }
  }

  /** Events in progress are delivered first; delayed ones are found at the next start. */
  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.allSettled(this.#delivering);
  }

  async #pay(
    id: string,
    outcome: 'success' | 'duplicate' | 'delay',
    origin: 'checkout' | 'auto',
  ): Promise<DemoCheckout> {
    const paymentId = `pi_demo_${uuidText(this.#options.newId())}`;
    return await this.#change(
      id,
      (checkout) => {
        if (checkout.status !== 'open' && checkout.status !== 'failed') {
          if (origin === 'auto') return [checkout, []]; // the same charge again
          throw unfit(checkout, outcome);
        }
        const metadata = metadataOf(checkout, origin);
        const intent = this.#event('payment_intent.succeeded', {
          id: paymentId,
          object: 'payment_intent',
          amount_received: checkout.amountCents,
          currency: checkout.currency,
          customer: `cus_demo_${checkout.accountId}`,
          payment_method: demoMethods.good,
          setup_future_usage: checkout.keepsCard ? 'off_session' : null,
          metadata,
        });
        const session = this.#event('checkout.session.completed', {
          id,
          object: 'checkout.session',
          payment_status: 'paid',
          payment_intent: paymentId,
          amount_total: checkout.amountCents,
          currency: checkout.currency,
          client_reference_id: checkout.topupId,
          metadata,
        });
        const events = origin === 'auto' ? [intent] : [session, intent];
        return [{ ...checkout, status: 'paid', paymentId }, events];
      },
      outcome === 'delay' ? demoDelayMs : 0,
      outcome === 'duplicate' ? 3 : 1,
    );
  }

  async #end(id: string, status: 'failed' | 'expired', origin: 'checkout' | 'auto'): Promise<DemoCheckout> {
    return await this.#change(id, (checkout) => {
      if (checkout.status === status) return [checkout, []];
      if (checkout.status !== 'open' && checkout.status !== 'failed') throw unfit(checkout, status);
      const type =
        status === 'expired'
          ? 'checkout.session.expired'
          : origin === 'auto'
            ? 'payment_intent.payment_failed'
            : 'checkout.session.async_payment_failed';
      return [{ ...checkout, status }, [this.#event(type, { id, metadata: metadataOf(checkout, origin) })]];
    });
  }

  async #refund(id: string, refundId: string, amountCents: number): Promise<DemoCheckout> {
    const eventKey = `refund_event:${refundId}`;
    return await this.#change(
      id,
      (checkout, known) => {
        if (known.has(eventKey)) return [checkout, []];
        const refundedCents = checkout.refundedCents + amountCents;
        if ((checkout.status !== 'paid' && checkout.status !== 'refunded') || amountCents < 1)
          throw unfit(checkout, 'refund');
        if (refundedCents > checkout.amountCents)
          throw new PaymentError('declined', 'More would be refunded than was paid.');
        const refund = { id: refundId, amountCents };
        const object = { ...refundOf(checkout, refund), status: 'succeeded' };
        const status = refundedCents === checkout.amountCents ? 'refunded' : 'paid';
        const refunds = [...checkout.refunds, refund];
        return [{ ...checkout, status, refundedCents, refunds }, [this.#event('refund.created', object, eventKey)]];
      },
      0,
      1,
      [eventKey],
    );
  }

  /** Changes a checkout and creates its events, in one transaction; then delivers them, each `copies` times. */
  async #change(
    id: string,
    change: (checkout: DemoCheckout, known: ReadonlySet<string>) => readonly [DemoCheckout, readonly NewDemoObject[]],
    delayMs = 0,
    copies = 1,
    keys: readonly string[] = [],
  ): Promise<DemoCheckout> {
    const { repositories } = this.#options;
    for (let tries = 0; tries < changeTriesMax; tries++) {
      const found = await repositories.getDemoObject({ id });
      if (found?.kind !== 'checkout') throw new PaymentError('declined', 'There is no such checkout.');
      const known = new Set<string>();
      for (const key of keys) if ((await repositories.getDemoObject({ id: key })) !== undefined) known.add(key);
      const before = JSON.parse(found.body) as DemoCheckout;
      const [after, events] = change(before, known);
      if (events.length === 0) return after;
      const payments =
        after.paymentId === before.paymentId || after.paymentId === undefined
          ? []
          : [this.#object('payment', after.paymentId, { checkoutId: id }, null)];
      const also = [...payments, ...events];
      const body = JSON.stringify(after);
      if (!(await repositories.changeDemoObject({ id, version: found.version, body, also }))) continue;
      if (delayMs > 0) this.#later(events, delayMs);
      else for (let copy = 0; copy < copies; copy++) await this.#deliver(events);
      return after;
    }
    throw new PaymentError('unavailable', 'This checkout was changed at the same time. Try again.');
  }

  #later(events: readonly NewDemoObject[], delayMs: number): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      const delivering = this.#deliver(events).finally(() => this.#delivering.delete(delivering));
      this.#delivering.add(delivering);
    }, delayMs).unref();
    this.#timers.add(timer);
  }

  /** The poll for missed events finds what the webhook does not accept now. */
  async #deliver(events: readonly Pick<DemoObject, 'body'>[]): Promise<void> {
    for (const { body } of events) {
      const signature = await signEvent(body, demoEventSecret(this.#options.secret), this.#options.now());
      await this.#options.deliver(Buffer.from(body), signature).catch(() => {});
    }
  }

  #event(type: string, object: object, id = `evt_demo_${uuidText(this.#options.newId())}`): NewDemoObject {
    const created = Math.floor(this.#options.now() / 1000);
    return this.#object('event', id, { id, object: 'event', type, created, data: { object } }, null);
  }

  #object(kind: string, id: string, body: object, idempotencyKey: string | null): NewDemoObject {
    return { id, kind, body: JSON.stringify(body), createdAt: this.#options.now(), idempotencyKey };
  }
}

/** The secret that signs its events: a string, like Stripe's secrets. */
export const demoEventSecret = (secret: KeyObject): string => secret.export().toString('hex');

const metadataOf = ({ topupId, accountId }: DemoCheckout, origin: string) => ({
  topup_id: topupId,
  account_id: accountId,
  origin,
});

const refundOf = (checkout: DemoCheckout, { id, amountCents }: DemoRefund) => ({
  id,
  object: 'refund',
  payment_intent: checkout.paymentId,
  amount: amountCents,
  currency: checkout.currency,
});

const disputeOf = (checkout: DemoCheckout, status: string) => ({
  id: checkout.disputeId,
  object: 'dispute',
  payment_intent: checkout.paymentId,
  amount: checkout.amountCents - checkout.refundedCents,
  currency: checkout.currency,
  status,
});

const unfit = ({ status }: DemoCheckout, input: string): PaymentError =>
  new PaymentError('declined', `This checkout is ${status}, so '${input}' is not possible.`);
