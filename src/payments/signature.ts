import { createHmac, timingSafeEqual, type KeyObject } from 'node:crypto';

import { PaymentError } from './provider.ts';

/** Stripe's window, and ours: an event that was signed longer ago may be a recording. */
export const signatureWindowMs = 300_000;
/** A signature holds a time and a few digests. */
const headerLengthMax = 1000;

/** `t=<seconds>,v1=<hex>`: HMAC-SHA-256 over the time, a dot and the bytes, as Stripe signs (docs.stripe.com/webhooks). */
export function signEvent(bytes: Uint8Array, secret: string | KeyObject, nowMs: number): string {
  const time = Math.floor(nowMs / 1000);
  return `t=${time},v1=${digestOf(bytes, secret, time).toString('hex')}`;
}

/** Throws `PaymentError` `refused`. */
export function checkSignature(
  bytes: Uint8Array,
  header: string | undefined,
  secret: string | KeyObject,
  nowMs: number,
): void {
  if (header === undefined || header.length > headerLengthMax) throw refused('it has no signature');
  const parts = header.split(',').map((part) => part.trim().split('=', 2) as [string, string | undefined]);
  const time = Number(parts.find(([name]) => name === 't')?.[1] ?? NaN);
  const digests = parts.flatMap(([name, value]) => (name === 'v1' && value !== undefined ? [value] : []));
  if (!Number.isSafeInteger(time) || digests.length === 0) throw refused('its signature has no time or no digest');
  const expected = digestOf(bytes, secret, time);
  const isOurs = digests.some((hex) => {
    const digest = Buffer.from(hex, 'hex');
    return digest.length === expected.length && timingSafeEqual(digest, expected);
  });
  if (!isOurs) throw refused('its signature is another one');
  if (Math.abs(nowMs - time * 1000) > signatureWindowMs) throw refused('it was signed more than five minutes ago');
}

function digestOf(bytes: Uint8Array, secret: string | KeyObject, time: number): Buffer {
  return createHmac('sha256', secret).update(`${time}.`).update(bytes).digest();
}

const refused = (why: string): PaymentError => new PaymentError('refused', `This event is refused: ${why}.`);
