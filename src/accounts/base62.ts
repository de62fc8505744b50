import { randomBytes } from 'node:crypto';

export const base62Alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** Returns `length` uniformly random characters, each with 5.95 bits from the system's random source. */
export function randomBase62(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(2 * length)) {
      const value = byte & 63;
      // 62 and 63 are discarded; folding them back would make two characters more likely than the others.
      if (value < 62 && text.length < length) text += base62Alphabet[value];
    }
  }
  return text;
}

/** Encodes a number as exactly `length` characters. */
export function toBase62(value: number, length: number): string {
  let text = '';
  for (let index = 0, rest = value; index < length; index++, rest = Math.floor(rest / 62)) {
    text = base62Alphabet[rest % 62]! + text;
  }
  return text;
}

/** Returns `acct_` and 12 characters, 71 random bits. */
export function newAccountId(): string {
  return `acct_${randomBase62(12)}`;
}

/** Returns `key_` and 12 characters. It identifies a key in lists and logs; it is not the key itself. */
export function newKeyId(): string {
  return `key_${randomBase62(12)}`;
}
