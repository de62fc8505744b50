import type Stripe from 'stripe';

import { eventOf } from './payment-event.ts';
import { PaymentError } from './provider.ts';
import type { PaymentEvent } from './provider.ts';

/** Stripe's window, used here too: an event signed longer ago may be a replay. */
const windowSeconds = 300;
/** A signature header holds a time and a few digests. */
const headerLengthMax = 1000;
/** Stripe's format, restricted to a single time, so that the time checked here is the one that the library checks. */
const headerForm = /^t=(\d{1,12})(?:,v\d=[0-9a-f]{1,128}){1,10}$/;

/**
 * Reads an event from bytes signed in Stripe's scheme (docs.stripe.com/webhooks). Stripe's library checks the signature; it is loaded with
 * the first event. Rejects with `PaymentError` `refused` unless exactly these bytes were signed with the secret, within five minutes.
 */
export async function readSignedEvent(
  bytes: Uint8Array,
  header: string | undefined,
  secret: string,
  nowMs: number,
): Promise<PaymentEvent> {
  if (header === undefined || header.length > headerLengthMax) throw refused('the signature is missing');
  const time = headerForm.exec(header)?.[1];
  if (time === undefined) throw refused('the signature has no time or no digest');
  const webhooks = await signer();
  let event: unknown;
  try {
    event = webhooks.constructEvent(bytes, header, secret, windowSeconds, undefined, nowMs);
  } catch (error) {
    if (error instanceof SyntaxError) throw refused('it is not JSON', error);
    const isOld = nowMs / 1000 - Number(time) > windowSeconds;
    throw refused(isOld ? 'it was signed more than five minutes ago' : 'the signature does not match', error);
  }
  // The library accepts signatures from the future.
  if (Number(time) - nowMs / 1000 > windowSeconds) throw refused('it was signed in the future');
  return eventOf(event);
}

/** Signs an event of the built-in provider, with the same library. */
export async function signEvent(text: string, secret: string, nowMs: number): Promise<string> {
  const webhooks = await signer();
  return webhooks.generateTestHeaderString({ payload: text, secret, timestamp: Math.floor(nowMs / 1000) });
}

async function signer(): Promise<Stripe['webhooks']> {
  const { default: Client } = await import('stripe');
  return Client.webhooks;
}

const refused = (why: string, cause?: unknown): PaymentError =>
  new PaymentError('refused', `The event was rejected: ${why}.`, cause);
