import { uuidText } from '../../platform/ids/uuid.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { Emitted } from '../../store/repositories/webhooks.ts';

/** The events for endpoints (docs/alerts.md). `ping` is only sent by a test. */
export const eventTypes = [
  'spend_alert.fired',
  'spend_alert.ended',
  'balance.low',
  'balance.ok',
  'auto_topup.failed',
  'refund.failed',
  'key.revoked',
  'invoice.issued',
  'receipt.issued',
  'day_head.signed',
  'ping',
] as const;
export type EventType = (typeof eventTypes)[number];

/** Maximum endpoints per account. */
export const endpointsMax = 20;
export const waitingMax = 1_000;

/** Notifies the endpoints of an account. */
export interface Events {
  /**
   * Resolves when the event is durable; it is sent from there. `data` is JSON without secrets. Two events with the same id (`evt_…`) are
   * sent once.
   */
  emit(accountId: string, type: EventType, data: object, id?: string): Promise<void>;
}

export class WebhookEvents implements Events {
  readonly #services: {
    readonly repositories: Repositories;
    readonly newId: () => Uint8Array;
    readonly now: () => number;
    /** Called when there is something to send. */
    readonly woken: () => void;
  };

  constructor(services: {
    readonly repositories: Repositories;
    readonly newId: () => Uint8Array;
    readonly now: () => number;
    readonly woken: () => void;
  }) {
    this.#services = services;
  }

  async emit(accountId: string, type: EventType, data: object, id?: string): Promise<void> {
    await this.#add(accountId, type, data, id === undefined ? {} : { id });
  }

  /** Sends a `ping` to one endpoint. If nothing waits afterwards, there is no active endpoint with that id. */
  async ping(accountId: string, endpointId: string): Promise<Emitted & { readonly eventId: string }> {
    return await this.#add(accountId, 'ping', { endpoint_id: endpointId }, { endpointId });
  }

  async #add(
    accountId: string,
    type: EventType,
    data: object,
    { id, endpointId }: { readonly id?: string; readonly endpointId?: string },
  ): Promise<Emitted & { readonly eventId: string }> {
    const { repositories, newId, now, woken } = this.#services;
    const at = now();
    const eventId = id ?? `evt_${uuidText(newId())}`;
    const body = JSON.stringify({
      id: eventId,
      type,
      timestamp: new Date(at).toISOString(),
      account_id: accountId,
      data,
    });
    const emitted = await repositories.addWebhookEvent({
      accountId,
      eventId,
      type,
      body,
      at,
      waitingMax,
      ids: Array.from({ length: endpointsMax }, () => `whd_${hexOf(newId())}`),
      ...(endpointId === undefined ? {} : { endpointId }),
    });
    if (emitted.waiting > 0) woken();
    return { ...emitted, eventId };
  }
}

/** Hex strings of ids sort by time. */
export const hexOf = (id: Uint8Array): string => Buffer.from(id).toString('hex');
