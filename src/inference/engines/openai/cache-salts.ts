import { createHmac, type KeyObject } from 'node:crypto';

/** Scopes whose salts stay in memory; the oldest is dropped first. */
const knownMax = 10_000;

/**
 * Salts that keep the cached prompts of different scopes apart on a server (reliability §3.5, §4). Nobody can guess one without the key. A
 * scope is an account, so its salt is computed once: an HMAC takes 30 µs, a twentieth of a whole request.
 */
export class CacheSalts {
  readonly #key: KeyObject | Uint8Array;
  readonly #known = new Map<string, string>();

  constructor(key: KeyObject | Uint8Array) {
    this.#key = key;
  }

  /** Returns the salt of everything in the scope. */
  of(scope: string): string {
    const known = this.#known.get(scope);
    if (known !== undefined) return known;
    const salt = this.once(scope);
    if (this.#known.size >= knownMax) for (const oldest of this.#known.keys()) if (this.#known.delete(oldest)) break;
    this.#known.set(scope, salt);
    return salt;
  }

  /** The same for a scope that never comes back. */
  once(scope: string): string {
    return createHmac('sha256', this.#key).update(scope).digest('base64url');
  }
}
