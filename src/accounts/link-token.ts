import { createHash, randomBytes } from 'node:crypto';

/**
 * The token in a link: 256 random bits. Only its hash is stored; with this much randomness a slow hash is unnecessary (reliability §3.6).
 */
export interface LinkToken {
  /** 43 characters of base64url. */
  readonly text: string;
  readonly hash: Uint8Array;
}

export function newLinkToken(): LinkToken {
  const text = randomBytes(32).toString('base64url');
  return { text, hash: hashLinkToken(text) };
}

export const hashLinkToken = (text: string): Uint8Array =>
  Uint8Array.from(createHash('sha256').update('tokenhouse link ').update(text).digest());
