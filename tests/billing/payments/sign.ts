import Stripe from 'stripe';

/** Signs bytes as Stripe signs them: by its library, not by anything of ours. */
export const signAsStripe = (bytes: Uint8Array, secret: string, nowMs: number): string =>
  Stripe.webhooks.generateTestHeaderString({
    payload: Buffer.from(bytes).toString(),
    secret,
    timestamp: Math.floor(nowMs / 1000),
  });
