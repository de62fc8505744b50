import { createCipheriv, createDecipheriv, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { ReasoningSigner } from '../dialects/dialect.ts';
import type { ReasoningSignature } from '../../generation/request.ts';

/** Each kind of signature begins with its own letter and the version of its format. */
const signed = 's1_';
const encrypted = 'e1_';
const ivBytes = 12;
const tagBytes = 16;

/**
 * Reasoning goes to the client and comes back with the next turn. A signature (HMAC-SHA-256) proves that the model wrote the
 * text; an encrypted one (AES-256-GCM) holds the text itself. Both are bound to the account.
 */
export class ReasoningKeys {
  readonly #signing: KeyObject;
  readonly #encryption: KeyObject;

  /** Two keys of 32 bytes that have no other use. */
  constructor(signing: KeyObject, encryption: KeyObject) {
    this.#signing = signing;
    this.#encryption = encryption;
  }

  /** Returns what encoders sign and encrypt with, for one account. */
  for(accountId: string): ReasoningSigner {
    return {
      sign: (text) => signed + this.#mac(text, accountId).toString('base64url'),
      encrypt: (text) => {
        const iv = randomBytes(ivBytes);
        const cipher = createCipheriv('aes-256-gcm', this.#encryption, iv).setAAD(Buffer.from(accountId));
        const body = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
        return encrypted + Buffer.concat([iv, cipher.getAuthTag(), body]).toString('base64url');
      },
    };
  }

  /** Returns the text that was signed or encrypted for this account; `undefined` if the signature is not ours, or not of this text. */
  open({ value }: ReasoningSignature, text: string, accountId: string): string | undefined {
    if (value.startsWith(signed)) {
      const presented = Buffer.from(value.slice(signed.length), 'base64url');
      const mac = this.#mac(text, accountId);
      return presented.length === mac.length && timingSafeEqual(presented, mac) ? text : undefined;
    }
    if (!value.startsWith(encrypted)) return undefined;
    const bytes = Buffer.from(value.slice(encrypted.length), 'base64url');
    if (bytes.length < ivBytes + tagBytes) return undefined;
    const iv = bytes.subarray(0, ivBytes);
    const decipher = createDecipheriv('aes-256-gcm', this.#encryption, iv, { authTagLength: tagBytes })
      .setAAD(Buffer.from(accountId))
      .setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes));
    try {
      return decipher.update(bytes.subarray(ivBytes + tagBytes), undefined, 'utf8') + decipher.final('utf8');
    } catch {
      return undefined;
    }
  }

  #mac(text: string, accountId: string): Buffer {
    return createHmac('sha256', this.#signing).update(accountId).update('\0').update(text).digest();
  }
}
