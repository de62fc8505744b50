import type { AccountLedger } from '../../store/ledger.ts';
import type { EventToRecord } from '../../store/repositories/payments.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { PaymentProvider } from './provider.ts';

export type PaymentLog = (level: 'info' | 'warn' | 'error', event: string, detail: Record<string, string>) => void;

export interface PaymentServices {
  readonly ledger: Pick<AccountLedger, 'transfer' | 'reverse' | 'reinstate'>;
  readonly repositories: Repositories;
  readonly now: () => number;
  readonly newId: () => Uint8Array;
  readonly provider: PaymentProvider;
  /** In lower case. */
  readonly currency: string;
  readonly log: PaymentLog;
  /** Called when a payment was just credited or returned. */
  readonly moved?: () => void;
}

/**
 * The outcome of an event. `applied`; `again`: the event or what it reports was already known; `ignored`: it does not concern this service;
 * `refused`: it contradicts the records, which a person has to examine. An event that arrives too early is rejected as `unavailable`, so
 * that it is redelivered.
 */
export type EventOutcome = 'applied' | 'again' | 'ignored' | 'refused';

export const recordingOf = (event: EventToRecord) =>
  ({
    name: 'payment_event',
    values: [event.provider, event.id, event.kind, event.subject, event.outcome, event.createdAt, event.receivedAt],
  }) as const;
