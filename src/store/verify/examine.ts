import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { livePepperIds } from '../repositories/content-status.ts';
import { verifyLedger, type Verification } from './verify.ts';

/** The content of a backup, after all of it was checked. */
export interface Examined extends Verification {
  /** Ids of the secrets that the live keys were hashed with. */
  readonly pepperIds: readonly string[];
}

/** Examines a copy, or the moment that a copy is taken of. Within a transaction it uses that transaction's moment. */
export async function examineLedger(db: Kysely<Database>): Promise<Examined> {
  // Requests may have been running when the copy was made: they become `crashed` at the next start.
  const verification = await verifyLedger(db, { owned: true });
  return { ...verification, pepperIds: await livePepperIds(db) };
}
