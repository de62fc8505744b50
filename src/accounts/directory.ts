import type { Budget } from '../store/budget.ts';
import type { AccountStatus } from '../store/database.ts';
import type { LoadedKey } from '../store/repositories/keys.ts';
import { keyAccess, keyRates, readAccountLimits, readLimits } from './key-limits.ts';
import type { KeyAccess, KeyRates } from './key-limits.ts';
import { lookUpHash, parseKey } from './key.ts';
import { SecretError } from './secret.ts';
import type { Secret } from './secret.ts';

/** The sender of a request. */
export interface Caller {
  readonly account: {
    readonly id: string;
    /** Ids in lower case; undefined: every model. */
    readonly models?: ReadonlySet<string> | undefined;
    /** Name of its plan. */
    readonly plan?: string | undefined;
    /** Requests that may run at the same time, where the account has a limit of its own. */
    readonly concurrencyMax?: number | undefined;
    /** The budget for all of its keys together. */
    readonly budget?: Budget | undefined;
  };
  readonly key: LiveKey;
}

/** Whether a caller is entitled to a model: its account is, and the key is not restricted from it (specification §5.5). */
export function isEntitled({ account, key }: Caller, modelId: string): boolean {
  const id = modelId.toLowerCase();
  return (account.models?.has(id) ?? true) && (key.models?.has(id) ?? true);
}

export interface LiveKey {
  readonly id: string;
  readonly accountId: string;
  /** Its user within the account; null: a legacy key without a user (specification §5.5). */
  readonly userId: string | null;
  readonly name: string;
  /** Its restrictions besides models; absent: none. */
  readonly access?: KeyAccess | undefined;
  /** Ids in lower case; undefined: all that the account may use. */
  readonly models?: ReadonlySet<string> | undefined;
  /** Its limits besides those of its account; absent: none. */
  readonly rates?: KeyRates | undefined;
  /** The plan of its account pays for its requests. */
  readonly isPlanKey?: boolean | undefined;
  /** Its budget. */
  readonly budget?: Budget | undefined;
  /** Its requests get these besides their own. */
  readonly tags?: readonly string[] | undefined;
  /** It manages accounts and makes no requests. */
  readonly isManagement?: boolean | undefined;
  readonly expiresAt: number | null;
}

interface KnownKey {
  readonly key: LiveKey;
  readonly isPaused: boolean;
  readonly hash: string;
  /** The secret before its last rotation. */
  readonly previous: { readonly hash: string; readonly endsAt: number } | undefined;
}

/** What the database has of an account that its keys work by. */
export interface KnownAccount {
  readonly id: string;
  readonly status: AccountStatus;
  readonly models: readonly string[] | null;
  readonly plan: string | null;
  /** JSON; see accounts/key-limits.ts. */
  readonly limits: string | null;
  readonly budget: Budget | null;
}

/** What running requests must learn at once: they end as `revoked`. */
export type Cut =
  | { readonly kind: 'key_revoked' | 'key_paused'; readonly keyId: string }
  | { readonly kind: 'account_suspended'; readonly accountId: string };

/**
 * Every live key in memory, by its hash, so that authentication costs one HMAC and one look-up and no I/O. The look-up goes by a
 * keyed hash that nobody outside can compute, so its timing reveals nothing about existing keys (reliability §3.5).
 */
export class Directory {
  readonly #secret: Secret;
  readonly #now: () => number;
  readonly #keys = new Map<string, KnownKey>();
  /** Ids of keys, by the hashes of their secrets. */
  readonly #ids = new Map<string, string>();
  readonly #suspended = new Set<string>();
  /** Models of the accounts that are restricted to some. */
  readonly #modelsOfAccounts = new Map<string, ReadonlySet<string>>();
  /** Plans, and limits on running requests, of the accounts that have any. */
  readonly #plansOfAccounts = new Map<string, string>();
  readonly #concurrencyOfAccounts = new Map<string, number>();
  readonly #budgetsOfAccounts = new Map<string, Budget>();
  readonly #listeners = new Set<(cut: Cut) => void>();

  constructor(secret: Secret, now: () => number = Date.now) {
    this.#secret = secret;
    this.#now = now;
  }

  /** The number of keys that are not revoked. */
  get size(): number {
    return this.#keys.size;
  }

  /** Ids of the keys that are not revoked. */
  ids(): readonly string[] {
    return [...this.#keys.keys()];
  }

  /** Whether a key was made with the secret of this directory; another one would never match. */
  isOwn(key: LoadedKey): boolean {
    return key.pepperId === this.#secret.id;
  }

  /** Adds or updates keys as the database has them. Throws when they were made with another secret: none would ever match. */
  load(keys: readonly LoadedKey[]): void {
    const strange = keys.filter((key) => !this.isOwn(key));
    if (strange.length > 0) {
      throw new SecretError(
        `${strange.length} of ${keys.length} API keys in the database were created with another secret (${strange[0]!.pepperId}; ` +
          `this is ${this.#secret.id}, from ${this.#secret.source === 'environment' ? 'TOKENHOUSE_SECRET' : 'the file `secret` in the data folder'}). ` +
          'Restore TOKENHOUSE_SECRET, or the file, to the secret that the keys were created with; or revoke these keys and create new ones.',
      );
    }
    for (const key of keys) this.#add(key);
  }

  /**
   * Finds the caller of a presented key. `malformed`: the text cannot be a key of ours; undefined: the key is not live: never
   * made, revoked, paused, expired, or of a suspended account; or a secret that a rotation has ended.
   */
  find(presented: string): Caller | 'malformed' | undefined {
    const text = parseKey(presented);
    if (text === undefined) return 'malformed';
    const hash = lookUpHash(text, this.#secret);
    const known = this.#keys.get(this.#ids.get(hash) ?? '');
    if (known === undefined || !this.#isLive(known, hash)) return undefined;
    const { key } = known;
    const id = key.accountId;
    return {
      account: {
        id,
        models: this.#modelsOfAccounts.get(id),
        plan: this.#plansOfAccounts.get(id),
        concurrencyMax: this.#concurrencyOfAccounts.get(id),
        budget: this.#budgetsOfAccounts.get(id),
      },
      key,
    };
  }

  /** The key is no longer live in the database. */
  revoke(keyId: string): void {
    if (this.#forget(keyId)) this.#report({ kind: 'key_revoked', keyId });
  }

  /** The account as it is in the database. */
  setAccount({ id, status, models, plan, limits, budget }: KnownAccount): void {
    setOrDelete(this.#modelsOfAccounts, id, setOf(models));
    setOrDelete(this.#plansOfAccounts, id, plan ?? undefined);
    setOrDelete(this.#concurrencyOfAccounts, id, readAccountLimits(limits).concurrencyMax);
    setOrDelete(this.#budgetsOfAccounts, id, budget ?? undefined);
    this.#setStatus(id, status);
  }

  /** Calls the listener for each key revoked or paused and each account suspended, until the returned function is called. */
  listen(listener: (cut: Cut) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #add(key: LoadedKey): void {
    const { id, accountId, userId, name, expiresAt, previous, isPaused = false } = key;
    const wasPaused = this.#keys.get(id)?.isPaused ?? false;
    this.#forget(id);
    const known: KnownKey = {
      key: {
        id,
        accountId,
        userId,
        name,
        ...limitsOf(key.limits),
        models: setOf(key.models),
        budget: key.budget ?? undefined,
        tags: key.tags === undefined || key.tags.length === 0 ? undefined : key.tags,
        isManagement: key.isManagement === true ? true : undefined,
        expiresAt,
      },
      isPaused,
      hash: textOf(key.hash),
      previous:
        previous === undefined || previous === null
          ? undefined
          : { hash: textOf(previous.hash), endsAt: previous.endsAt },
    };
    this.#keys.set(id, known);
    this.#ids.set(known.hash, id);
    if (known.previous !== undefined) this.#ids.set(known.previous.hash, id);
    if (isPaused && !wasPaused) this.#report({ kind: 'key_paused', keyId: id });
    this.setAccount({
      id: accountId,
      status: key.accountStatus,
      models: key.accountModels,
      plan: key.accountPlan,
      limits: key.accountLimits,
      budget: key.accountBudget,
    });
  }

  /** `false`: it was not there. */
  #forget(keyId: string): boolean {
    const known = this.#keys.get(keyId);
    if (known === undefined) return false;
    this.#keys.delete(keyId);
    this.#ids.delete(known.hash);
    if (known.previous !== undefined) this.#ids.delete(known.previous.hash);
    return true;
  }

  #setStatus(accountId: string, status: AccountStatus): void {
    if (status === 'active') {
      this.#suspended.delete(accountId);
      return;
    }
    if (this.#suspended.has(accountId)) return;
    this.#suspended.add(accountId);
    this.#report({ kind: 'account_suspended', accountId });
  }

  #isLive(known: KnownKey, hash: string): boolean {
    const { key, previous } = known;
    const now = this.#now();
    if (known.isPaused || (key.expiresAt !== null && now >= key.expiresAt)) return false;
    if (hash !== known.hash && (previous === undefined || now >= previous.endsAt)) return false;
    return !this.#suspended.has(key.accountId);
  }

  #report(cut: Cut): void {
    for (const listener of [...this.#listeners]) listener(cut);
  }
}

const textOf = (hash: Uint8Array): string =>
  Buffer.from(hash.buffer, hash.byteOffset, hash.byteLength).toString('latin1');

function limitsOf(text: string | null): Pick<LiveKey, 'access' | 'rates' | 'isPlanKey'> {
  if (text === null) return { access: undefined, rates: undefined, isPlanKey: undefined };
  const limits = readLimits(text);
  return { access: keyAccess(limits), rates: keyRates(limits), isPlanKey: limits.planKey };
}

function setOrDelete<Value>(map: Map<string, Value>, key: string, value: Value | undefined): void {
  if (value === undefined) map.delete(key);
  else map.set(key, value);
}

const setOf = (models: readonly string[] | null): ReadonlySet<string> | undefined =>
  models === null ? undefined : new Set(models);
