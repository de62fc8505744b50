import { createHmac } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { NewKey } from '../store/repositories/keys.ts';
import { newKeyId, randomBase62, toBase62 } from './base62.ts';
import type { Role } from './role.ts';
import type { Secret } from './secret.ts';

const prefix = 'tkh_';
const randomLength = 32; // 190.5 bits
const checkLength = 6; // 62^6 > 2^32
const format = new RegExp(`^${prefix}[0-9A-Za-z]{${randomLength + checkLength}}$`);

/** A key in plain text: displayed once, to its recipient, and never stored. */
export type KeyText = string & { readonly brand: 'KeyText' };

/** Returns a new key: `tkh_`, 32 random characters, and 6 check characters by which this service and scanners recognize a key. */
export function newKey(): KeyText {
  const body = prefix + randomBase62(randomLength);
  return (body + checkOf(body)) as KeyText;
}

/** Returns the presented text if it has the form of a key; undefined for junk, which then costs no hash and no lookup. */
export function parseKey(presented: string): KeyText | undefined {
  if (!format.test(presented)) return undefined;
  const body = presented.slice(0, -checkLength);
  return checkOf(body) === presented.slice(-checkLength) ? (presented as KeyText) : undefined;
}

/** Returns 32 bytes: HMAC-SHA-256 of the whole key. A key has 190 random bits, so a slow hash would only add delay. */
export function hashKey(key: KeyText, secret: Secret): Uint8Array {
  return Uint8Array.from(createHmac('sha256', secret.pepper).update(key, 'latin1').digest());
}

/** The same hash as a map key: one character per byte. */
export function lookUpHash(key: KeyText, secret: Secret): string {
  return createHmac('sha256', secret.pepper).update(key, 'latin1').digest('binary');
}

/** The displayable part of a key, by which its owner recognizes it. */
export function displayOf(key: KeyText): string {
  return `${prefix}…${key.slice(-4)}`;
}

export interface KeyInput {
  readonly accountId: string;
  /** Its user within the account; omitted or null: a legacy key, which uploads no files (specification §5.5). */
  readonly userId?: string | null;
  readonly name: string;
  readonly secret: Secret;
  readonly now: number;
  readonly expiresAt?: number | null;
  /** A JSON object. */
  readonly limits?: string | null;
  /** Ids in lower case; omitted or null: all that the account may use. */
  readonly models?: readonly string[] | null;
  /** Omitted or null: an inference key. */
  readonly role?: Role | null;
  readonly isOperator?: boolean;
  readonly tags?: readonly string[];
  /** The session that it ends with. */
  readonly sessionId?: string | null;
}

/** Creates a key, and its row for the database. */
export function issueKey(input: KeyInput): { readonly text: KeyText; readonly row: NewKey } {
  const text = newKey();
  const row = {
    id: newKeyId(),
    accountId: input.accountId,
    userId: input.userId ?? null,
    name: input.name,
    display: displayOf(text),
    hash: hashKey(text, input.secret),
    pepperId: input.secret.id,
    limits: input.limits ?? null,
    models: input.models ?? null,
    role: input.role ?? null,
    isOperator: input.isOperator ?? false,
    tags: input.tags ?? [],
    createdAt: input.now,
    expiresAt: input.expiresAt ?? null,
    sessionId: input.sessionId ?? null,
  };
  return { text, row };
}

/** The checksum is not a secret, so comparing it may stop early. */
function checkOf(body: string): string {
  return toBase62(crc32(body), checkLength);
}
