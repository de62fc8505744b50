import type { Caller } from '../../accounts/directory.ts';

/** The facts of a request that do not come from its body. */
export interface RequestFacts extends Caller {
  /** UUIDv7, the ledger's key. */
  readonly id: Uint8Array;
  /** The id as 32 hex digits. */
  readonly idHex: string;
  /** Its id in the ledger and in logs: the client's `x-request-id`, unless nothing that the client chose may be kept. */
  readonly publicId: string;
  readonly clientId: string | null;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** The same by `performance.now()`, which no clock change affects (reliability S5). */
  readonly begunMs: number;
  /** Zero data retention: nothing of the request may be kept. */
  readonly zdr: boolean;
  /** The batch that it is a line of, as its client knows it; null: none. */
  readonly batchId: string | null;
}

/** Whole milliseconds since the request arrived. */
export const elapsedMs = ({ begunMs }: Pick<RequestFacts, 'begunMs'>): number =>
  Math.round(performance.now() - begunMs);
