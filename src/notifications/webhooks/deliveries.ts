import type { DialOptions } from '../../platform/outbound/dial.ts';
import type { NameResolver } from '../../platform/outbound/resolver.ts';
import type { Log } from '../../platform/log.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { DueDelivery } from '../../store/repositories/webhooks.ts';
import { post } from './post.ts';
import { signature } from './signature.ts';
import type { WebhookRules } from './target.ts';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
/** Pauses after the first try, the second, and so on; after the last one a delivery has failed: four days in total. */
export const pausesMs = [
  5_000,
  minuteMs,
  5 * minuteMs,
  30 * minuteMs,
  2 * hourMs,
  6 * hourMs,
  12 * hourMs,
  24 * hourMs,
  24 * hourMs,
  24 * hourMs,
] as const;
/** Longer than a try takes, so a process that still claims a delivery after this is dead. */
const claimedForMs = minuteMs;
const atOnce = 32;
const perAccountAtOnce = 4;
export const keptMs = 30 * 24 * hourMs;
const forgottenAtOnce = 500;

export interface DeliveryServices {
  readonly repositories: Repositories;
  readonly rules: () => WebhookRules;
  readonly resolver: () => NameResolver;
  readonly dial: DialOptions;
  readonly secretOf: (endpointId: string, version: number) => string;
  readonly disableAfterMs: () => number;
  readonly now: () => number;
  readonly log: Log;
}

/**
 * Sends pending deliveries, at least once each: if a process dies after the receiver accepted a delivery, it is sent again, with the same
 * `Webhook-Id`. A failed try is retried after a pause that grows up to a day.
 */
export class Deliveries {
  readonly #services: DeliveryServices;

  constructor(services: DeliveryServices) {
    this.#services = services;
  }

  /** Processes one batch of due deliveries; true: there may be more. */
  async deliverDue(signal: AbortSignal): Promise<boolean> {
    const { repositories, now } = this.#services;
    const at = now();
    const due = await repositories.claimDeliveries({
      now: at,
      claimedUntil: at + claimedForMs,
      limit: atOnce,
      perAccountMax: perAccountAtOnce,
    });
    await Promise.all(due.map((delivery) => this.#deliver(delivery, signal)));
    return due.length > 0;
  }

  async #deliver(delivery: DueDelivery, signal: AbortSignal): Promise<void> {
    const { repositories, now, secretOf, disableAfterMs, log, rules, resolver, dial } = this.#services;
    const { id, endpointId, eventId, body, url, secretVersion, tries } = delivery;
    const seconds = Math.floor(now() / 1_000);
    const headers = {
      'webhook-id': eventId,
      'webhook-timestamp': String(seconds),
      'webhook-signature': signature(secretOf(endpointId, secretVersion), eventId, seconds, body),
    };
    const posted = await post(url, body, headers, { rules: rules(), resolver: resolver(), dial }, signal).catch(
      (error: unknown) => {
        if (signal.aborted) return undefined;
        throw error;
      },
    );
    // Cancelled: another process sends it when the claim expires.
    if (posted === undefined) return;
    const at = now();
    const pause = pausesMs[tries];
    const noted = await repositories.noteTry({
      id,
      endpointId,
      claimedUntil: delivery.nextAt!,
      at,
      isDelivered: posted.failure === null,
      ...posted,
      // Jitter, so that deliveries that failed together are not retried together.
      nextAt: pause === undefined ? null : at + Math.round(pause * (0.9 + Math.random() / 5)),
      disableBefore: at - disableAfterMs(),
    });
    if (noted === 'disabled')
      log.service({
        level: 'warn',
        event: 'webhook_disabled',
        detail: { endpoint: endpointId, account: delivery.accountId },
      });
  }

  /** Deletes deliveries beyond their retention; true: there may be more. */
  async forgetOld(): Promise<boolean> {
    const { repositories, now } = this.#services;
    const forgotten = await repositories.forgetDeliveries({ before: now() - keptMs, limit: forgottenAtOnce });
    return forgotten === forgottenAtOnce;
  }
}
