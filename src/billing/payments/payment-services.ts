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
  /** A payment was credited or returned just now. */
  readonly moved?: () => void;
}

/**
 * The outcome of an event: `applied`; `again`, it or what it reports was known; `ignored`, it concerns nothing here; `refused`,
 * it contradicts what is there, which a human has to look at. An event that is too early is rejected as `unavailable`, so that it
 * comes again.
 */
export type EventOutcome = 'applied' | 'again' | 'ignored' | 'refused';

export const recordingOf = (event: EventToRecord) =>
  ({
    name: 'payment_event',
    values: [event.provider, event.id, event.kind, event.subject, event.outcome, event.createdAt, event.receivedAt],
  }) as const;
