/** The public keys of days' signatures; all that there ever were, because heads are checked with the key that signed them. */
import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { hex } from './merkle.ts';

export interface SigningKey {
  readonly id: string;
  /** From 1 on. The last one signs. */
  readonly number: number;
  /** Ed25519, 32 bytes. */
  readonly publicKey: Uint8Array;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
}

/** Its published form. */
export interface PublicKey {
  readonly id: string;
  /** Ed25519, 32 bytes in hex. */
  readonly public_key: string;
}

export const shownKey = ({ id, publicKey }: SigningKey): PublicKey => ({ id, public_key: hex(publicKey) });

/** Oldest first. */
export async function listSigningKeys(db: Kysely<Database>): Promise<readonly SigningKey[]> {
  const rows = await db.selectFrom('signing_key').selectAll().orderBy('number').execute();
  return rows.map((row) => ({
    id: row.id,
    number: Number(row.number),
    publicKey: Uint8Array.from(row.public_key),
    createdAt: Number(row.created_at),
  }));
}

/** Nothing happens if it is there, or its number is: another process has added it. */
export async function addSigningKey(db: Kysely<Database>, key: SigningKey): Promise<void> {
  await db
    .insertInto('signing_key')
    .values({ id: key.id, number: key.number, public_key: key.publicKey, created_at: key.createdAt })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}
