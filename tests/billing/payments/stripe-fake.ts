import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';

import { apiVersion } from '../../../src/billing/payments/stripe.ts';
import { signAsStripe } from './sign.ts';
import { callOf, faultOf } from './stripe-parameters.ts';

type Fields = Record<string, unknown>;

/**
 * The part of Stripe's HTTP API that the service uses, with a memory: checkouts, payments, refunds, events, and idempotency
 * keys that answer the same again and refuse other parameters, as Stripe does. Its events are signed as Stripe signs.
 */
export class StripeFake {
  readonly #server: Server;
  readonly #answers = new Map<string, { readonly text: string; readonly sent: string }>();
  readonly #sessions = new Map<string, Fields>();
  readonly #payments = new Map<string, Fields & { refunded: number }>();
  readonly #refunds = new Map<string, Fields>();
  readonly events: Fields[] = [];
  /** All that was asked, as it was sent. */
  readonly requests: { readonly method: string; readonly url: string; readonly sent: string }[] = [];
  /** Of calls that were carried out, not answered from memory. */
  readonly calls: string[] = [];
  readonly key = 'sk_test_fake';
  readonly webhookSecret = 'whsec_fake_0123456789';
  /** Answers this many calls with a lost connection, after it has carried them out. */
  losesAnswers = 0;
  /** Cards that are charged while nobody is there are declined. */
  declines = false;
  /** Calls that name one of them are refused. */
  readonly deletedCustomers = new Set<string>();
  /** What Stripe Tax computes, where it was asked to. */
  tax = { cents: 0, name: 'VAT', percent: 0, reason: 'standard_rated' };
  #count = 0;

  constructor() {
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  async start(): Promise<void> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get sessionIds(): readonly string[] {
    return [...this.#sessions.keys()];
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  /** The person pays: the events, oldest first, as they would be delivered. */
  pay(sessionId: string): readonly Fields[] {
    const session = this.#sessions.get(sessionId)!;
    const intent = this.#id('pi');
    const amount = session['amount_total'];
    const { currency, metadata } = session;
    const isKept = session['setup_future_usage'] === 'off_session';
    const customer = session['customer'] ?? (isKept ? this.#id('cus') : null);
    const { cents, name, percent, reason } = this.tax;
    const card = { id: this.#id('pm'), type: 'card', card: { brand: 'visa', last4: '4242' } };
    this.#payments.set(intent, { id: intent, amount, currency, metadata, customer, payment_method: card, refunded: 0 });
    const paid = {
      id: intent,
      amount_received: amount,
      currency,
      metadata,
      customer,
      payment_method: card.id,
      setup_future_usage: isKept ? 'off_session' : null,
    };
    const rate = { display_name: name, percentage: percent };
    const taxes = [{ amount: cents, rate, taxability_reason: reason, taxable_amount: Number(amount) - cents }];
    Object.assign(session, {
      payment_status: 'paid',
      payment_intent: intent,
      customer,
      total_details: { amount_tax: cents, breakdown: { discounts: [], taxes } },
    });
    return [this.emit('payment_intent.succeeded', paid), this.emit('checkout.session.completed', { ...session })];
  }

  /** A payment that another product has made on the same account; its id. */
  payElsewhere(amount = 500): string {
    const id = this.#id('pi');
    this.#payments.set(id, { id, amount, currency: 'usd', metadata: { order: '17' }, refunded: 0 });
    return id;
  }

  label(paymentId: string, metadata: Readonly<Record<string, string>>): void {
    this.#payments.get(paymentId)!['metadata'] = metadata;
  }

  dispute(paymentId: string): readonly Fields[] {
    const { amount, currency } = this.#payments.get(paymentId)!;
    const object = { id: this.#id('dp'), payment_intent: paymentId, amount, currency, status: 'needs_response' };
    return [this.emit('charge.dispute.created', object), this.emit('charge.dispute.funds_withdrawn', object)];
  }

  /** The bank does not take a refund: what Stripe says then. */
  failRefund(refundId: string): readonly Fields[] {
    const refund = { ...this.#refunds.get(refundId)!, status: 'failed', failure_reason: 'expired_or_canceled_card' };
    return [this.emit('refund.updated', refund), this.emit('refund.failed', refund)];
  }

  emit(type: string, object: Fields): Fields {
    const event = {
      id: this.#id('evt'),
      object: 'event',
      api_version: apiVersion,
      type,
      created: Math.floor(Date.now() / 1000),
      data: { object },
    };
    this.events.push(event);
    return event;
  }

  /** The bytes of an event and their signature. */
  signed(event: Fields, nowMs = Date.now()): { readonly bytes: Uint8Array; readonly signature: string } {
    const bytes = Buffer.from(JSON.stringify(event));
    return { bytes, signature: signAsStripe(bytes, this.webhookSecret, nowMs) };
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const sent = Buffer.concat(chunks).toString();
    const send = (status: number, body: object | string): void => {
      if (this.losesAnswers > 0) {
        this.losesAnswers--;
        response.destroy();
        return;
      }
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(typeof body === 'string' ? body : JSON.stringify(body));
    };
    const fail = (status: number, code: string): void =>
      send(status, { error: { type: 'card_error', code, message: code } });
    if (request.headers.authorization !== `Bearer ${this.key}`) return fail(401, 'api_key_invalid');
    this.requests.push({ method: request.method!, url: request.url!, sent });
    if (request.headers['stripe-version'] !== apiVersion) return fail(400, 'api_version_unknown');
    const { pathname, searchParams } = new URL(request.url!, 'http://x');
    const form = request.method === 'GET' ? searchParams : new URLSearchParams(sent);
    const fault = faultOf(callOf(request.method!, pathname), form);
    if (fault !== undefined) return fail(400, fault);
    if (request.method === 'GET' && pathname === '/v1/events') return send(200, this.#list(searchParams));
    if (request.method === 'GET') {
      const id = pathname.split('/').at(-1)!;
      const found = pathname.startsWith('/v1/checkout/sessions/') ? this.#sessions.get(id) : this.#payments.get(id);
      return found === undefined ? fail(404, 'resource_missing') : send(200, found);
    }
    const key = request.headers['idempotency-key'];
    if (typeof key !== 'string') return fail(400, 'idempotency_key_missing');
    const earlier = this.#answers.get(key);
    if (earlier !== undefined)
      return earlier.sent === sent ? send(200, earlier.text) : fail(400, 'idempotency_key_in_use');
    const customer = form.get('customer');
    if (customer !== null && this.deletedCustomers.has(customer)) {
      const message = `No such customer: '${customer}'`;
      return send(400, {
        error: { type: 'invalid_request_error', code: 'resource_missing', param: 'customer', message },
      });
    }
    const made = this.#make(pathname, form);
    if (typeof made === 'string') return fail(402, made);
    this.calls.push(pathname);
    const text = JSON.stringify(made);
    this.#answers.set(key, { text, sent });
    send(200, text);
  }

  #make(path: string, form: URLSearchParams): Fields | string {
    const metadata = Object.fromEntries(
      [...form].flatMap(([name, value]) => {
        const field = /^metadata\[(.+)\]$/.exec(name)?.[1];
        return field === undefined ? [] : [[field, value]];
      }),
    );
    const amount = Number(form.get('amount'));
    switch (path) {
      case '/v1/checkout/sessions': {
        const id = this.#id('cs');
        const session = {
          id,
          object: 'checkout.session',
          url: `${this.url}/pay/${id}`,
          amount_total: Number(form.get('line_items[0][price_data][unit_amount]')),
          currency: form.get('line_items[0][price_data][currency]'),
          payment_status: 'unpaid',
          customer: form.get('customer'),
          setup_future_usage: form.get('payment_intent_data[setup_future_usage]'),
          automatic_tax: { enabled: form.get('automatic_tax[enabled]') === 'true' },
          metadata,
        };
        this.#sessions.set(id, session);
        return session;
      }
      case '/v1/payment_intents': {
        const id = this.#id('pi');
        const currency = form.get('currency');
        if (this.declines) {
          this.emit('payment_intent.payment_failed', { id, metadata });
          return 'card_declined';
        }
        const customer = form.get('customer');
        const card = { id: form.get('payment_method'), type: 'card', card: { brand: 'mastercard', last4: '4444' } };
        this.#payments.set(id, { id, amount, currency, metadata, customer, payment_method: card, refunded: 0 });
        this.emit('payment_intent.succeeded', { id, amount_received: amount, currency, metadata });
        return { id, object: 'payment_intent', status: 'succeeded' };
      }
      case '/v1/tax/calculations': {
        const { cents, percent, reason } = this.tax;
        return {
          id: this.#id('taxcalc'),
          tax_amount_inclusive: cents,
          tax_breakdown: [
            {
              amount: cents,
              inclusive: true,
              taxability_reason: reason,
              tax_rate_details: { tax_type: 'vat', percentage_decimal: String(percent) },
            },
          ],
        };
      }
      case '/v1/tax/transactions/create_from_calculation':
        return { id: this.#id('tax'), object: 'tax.transaction' };
      case '/v1/refunds': {
        const payment = this.#payments.get(form.get('payment_intent') ?? '');
        if (payment === undefined) return 'resource_missing';
        if (payment.refunded + amount > (payment['amount'] as number)) return 'charge_already_refunded';
        payment.refunded += amount;
        const refund = {
          id: this.#id('re'),
          object: 'refund',
          payment_intent: payment['id'],
          amount,
          currency: payment['currency'],
          status: 'succeeded',
        };
        this.#refunds.set(refund.id, refund);
        this.emit('refund.created', refund);
        return refund;
      }
    }
    return 'resource_missing';
  }

  /** Newest first, in pages. */
  #list(query: URLSearchParams): Fields {
    const [from, to] = [Number(query.get('created[gte]')), Number(query.get('created[lt]'))];
    const types = new Set([...query].flatMap(([name, value]) => (name.startsWith('types') ? [value] : [])));
    const all = this.events
      .filter(
        ({ created, type }) => (created as number) >= from && (created as number) < to && types.has(type as string),
      )
      .reverse();
    const after = query.get('starting_after');
    const start = after === null ? 0 : all.findIndex(({ id }) => id === after) + 1;
    // Smaller pages than were asked for, so that a handful of events is several.
    const data = all.slice(start, start + 2);
    return { object: 'list', data, has_more: all.length > start + 2 };
  }

  #id(prefix: string): string {
    return `${prefix}_fake_${String(++this.#count).padStart(6, '0')}`;
  }
}
