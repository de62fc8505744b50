import { PaymentError } from './provider.ts';
import type { PaymentEvent, PaymentNews } from './provider.ts';

/** Reads an event in Stripe's format, which the built-in provider uses too. Throws `PaymentError` `refused` for anything else. */
export function readEvent(text: string): PaymentEvent {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new PaymentError('refused', 'The event was rejected: it is not JSON.', error);
  }
  return eventOf(value);
}

/** The same for parsed JSON. */
export function eventOf(value: unknown): PaymentEvent {
  const event = objectOf(value);
  const { id, type, created } = event;
  const data = objectOf(objectOf(event['data'])['object']);
  if (typeof id !== 'string' || id === '' || id.length > 255 || typeof type !== 'string' || typeof created !== 'number')
    throw new PaymentError('refused', 'The event was rejected: id, type or time is missing.');
  const { api_version: version } = event;
  return {
    id,
    type,
    createdAt: created * 1000,
    version: typeof version === 'string' ? version.slice(0, 64) : undefined,
    news: newsOf(type, data),
  };
}

/**
 * Maps Stripe's event types. Two of them report one payment (`checkout.session.completed` and `payment_intent.succeeded`), with the same id
 * in both.
 */
function newsOf(type: string, data: Fields): PaymentNews {
  switch (type) {
    case 'checkout.session.completed':
    case 'checkout.session.async_payment_succeeded':
      // A payment that takes days: another event reports its outcome.
      return data['payment_status'] === 'paid' ? paid(data, idOf(data['payment_intent']), data['amount_total']) : other;
    case 'payment_intent.succeeded':
      return paid(data, idOf(data['id']), data['amount_received']);
    case 'checkout.session.async_payment_failed':
      return ended('failed', data);
    case 'checkout.session.expired':
      return ended('expired', data);
    case 'payment_intent.payment_failed':
      // On a checkout page the user can try another card.
      return metadataOf(data)['origin'] === 'auto' ? ended('failed', data) : other;
    case 'refund.created':
    case 'refund.updated':
    case 'charge.refund.updated':
      if (data['status'] === 'succeeded') return returned('refunded', data);
      // A pending refund does not count yet.
      return data['status'] === 'failed' || data['status'] === 'canceled' ? returned('refund_failed', data) : other;
    case 'refund.failed':
      return returned('refund_failed', data);
    case 'charge.dispute.created':
      // An inquiry takes no money yet.
      return String(data['status']).startsWith('warning') ? other : returned('disputed', data);
    case 'charge.dispute.funds_withdrawn':
      return returned('disputed', data);
    case 'charge.dispute.funds_reinstated':
      return returned('dispute_won', data);
    case 'charge.dispute.closed':
      return data['status'] === 'won' ? returned('dispute_won', data) : other;
  }
  return other;
}

const other: PaymentNews = { kind: 'other' };

function paid(data: Fields, paymentId: string | undefined, amount: unknown): PaymentNews {
  const { topup_id: topupId, account_id: accountId } = metadataOf(data);
  const { currency } = data;
  // Another product may use the same account at the provider.
  if (topupId === undefined || accountId === undefined) return other;
  if (paymentId === undefined || !isCents(amount) || typeof currency !== 'string')
    return { kind: 'unreadable', paymentId: undefined };
  const [customerId, methodId] = [idOf(data['customer']), idOf(data['payment_method'])];
  // A payment always names its card; the card is kept only if that was requested.
  const isKept = data['setup_future_usage'] === 'off_session';
  const method = isKept && customerId !== undefined && methodId !== undefined ? { customerId, methodId } : undefined;
  return { kind: 'paid', paymentId, topupId, accountId, amountCents: amount, currency, method };
}

function ended(kind: 'failed' | 'expired', data: Fields): PaymentNews {
  const { topup_id: topupId, account_id: accountId } = metadataOf(data);
  return topupId === undefined || accountId === undefined ? other : { kind, topupId, accountId };
}

function returned(kind: 'refunded' | 'disputed' | 'dispute_won' | 'refund_failed', data: Fields): PaymentNews {
  const [returnId, paymentId] = [idOf(data['id']), idOf(data['payment_intent'])];
  const { amount, currency } = data;
  if (paymentId === undefined) return other;
  if (returnId === undefined || !isCents(amount) || typeof currency !== 'string')
    return { kind: 'unreadable', paymentId };
  return { kind, returnId, paymentId, amountCents: amount, currency };
}

type Fields = Readonly<Record<string, unknown>>;

function objectOf(value: unknown): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw unfit();
  return value as Fields;
}

function metadataOf(data: Fields): Readonly<Record<string, string | undefined>> {
  const metadata = data['metadata'];
  if (typeof metadata !== 'object' || metadata === null) return {};
  return Object.fromEntries(Object.entries(metadata).filter((entry) => typeof entry[1] === 'string'));
}

/** Stripe sends either an id or the whole object with that id. */
function idOf(value: unknown): string | undefined {
  const id = typeof value === 'object' && value !== null ? (value as Fields)['id'] : value;
  return typeof id === 'string' && id !== '' && id.length <= 255 ? id : undefined;
}

const isCents = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

const unfit = (): PaymentError => new PaymentError('refused', 'The event was rejected: its form is unknown.');
