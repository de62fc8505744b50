import type { Row } from '../../api/use-api.ts';
import type { AlertTexts } from './messages/en.ts';

export type Endpoint = Row<'/v1/webhook_endpoints'>;
export type Delivery = Row<'/v1/webhook_endpoints/{id}/deliveries'>;
type EventType = NonNullable<Endpoint['events']>[number];

/** What each event says. An event that the API has and this list has not does not compile. */
const eventTexts = {
  'spend_alert.fired': 'evAlertFired',
  'spend_alert.ended': 'evAlertEnded',
  'balance.low': 'evBalanceLow',
  'balance.ok': 'evBalanceOk',
  'auto_topup.failed': 'evTopupFailed',
  'refund.failed': 'evRefundFailed',
  'key.revoked': 'evKeyRevoked',
  'invoice.issued': 'evInvoice',
  'receipt.issued': 'evReceipt',
  'day_head.signed': 'evDayHead',
  ping: 'evPing',
} as const satisfies Readonly<Record<EventType, keyof AlertTexts>>;

/** Those that one subscribes to; `ping` is sent by a test alone. */
export const offeredEvents = (Object.entries(eventTexts) as [EventType, keyof AlertTexts][]).filter(
  ([type]) => type !== 'ping',
);

/** `events` of the API: null is all of them, also those that come later. */
export function eventsIn(form: FormData): EventType[] | null {
  if (form.get('all') !== null) return null;
  const chosen = form.getAll('event');
  return offeredEvents.map(([type]) => type).filter((type) => chosen.includes(type));
}
