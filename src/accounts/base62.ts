import { randomBytes } from 'node:crypto';

export const base62Alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** `length` characters, each equally likely: 5.95 bits of the system's random source in each. */
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

/** A number in exactly `length` characters. */
export function toBase62(value: number, length: number): string {
  let text = '';
  for (let index = 0, rest = value; index < length; index++, rest = Math.floor(rest / 62)) {
    text = base62Alphabet[rest % 62]! + text;
  }
  return text;
}

/** `acct_` and 12 characters, 71 random bits. */
export function newAccountId(): string {
  return `acct_${randomBase62(12)}`;
}

/** `key_` and 12 characters. Names a key in lists and logs; it is not the key. */
export function newKeyId(): string {
  return `key_${randomBase62(12)}`;
}
