import { memberSubject, type Budget } from '../store/budget.ts';
import type { AccountStatus } from '../store/database.ts';
import type { AccountPrice } from '../store/repositories/account-prices.ts';
import type { LoadedKey, ModelBudget } from '../store/repositories/loaded-keys.ts';
import type { AccountAlias } from './account-aliases.ts';
import { keyAccess, readAccountLimits, readLimits, scopedRates, tiersOf } from './key-limits.ts';
import type { KeyAccess, ScopedRates } from './key-limits.ts';
import { lookUpHash, parseKey } from './key.ts';
import type { RatesOfAccounts } from './account-rates.ts';
import { KeyReads } from './key-reads.ts';
import type { KeyRead } from './key-reads.ts';
import { SecretError } from './secret.ts';
import type { Secret } from './secret.ts';
import { UnknownKeys } from './unknown-keys.ts';

/** The sender of a request. */
export interface Caller {
  readonly account: {
    readonly id: string;
    /** Ids in lower case; undefined: every model. */
    readonly models?: ReadonlySet<string> | undefined;
    /** The name of its plan. */
    readonly plan?: string | undefined;
    /** Its own limits, which go before those of its plan; undefined: none. */
    readonly limits?: ScopedRates | undefined;
    /** The service tier of requests that name none; undefined: `default`. */
    readonly tier?: 'priority' | 'default' | 'flex' | undefined;
    /** The tiers that it may use besides `default`; undefined: all. */
    readonly tiers?: ReadonlySet<string> | undefined;
    /** Whether all of its requests require zero data retention. */
    readonly zdrRequired?: boolean | undefined;
    /** The budget shared by all of its keys. */
    readonly budget?: Budget | undefined;
    /** What all of its keys together may spend on single models, by their ids in lower case; undefined: no such limits. */
    readonly modelBudgets?: ReadonlyMap<string, Budget> | undefined;
    /** Its own names for models, in lower case; undefined: none. */
    readonly aliases?: ReadonlyMap<string, AccountAlias> | undefined;
    /** Rates that replace the list prices now or later; undefined: none. */
    readonly rates?: readonly AccountPrice[] | undefined;
  };
  readonly key: LiveKey;
}

/** Whether a caller may use a model: its account may, and the key is not restricted from it (specification §5.5). */
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
  /** Its restrictions other than models; absent: unrestricted. */
  readonly access?: KeyAccess | undefined;
  /** Ids in lower case; undefined: all that the account may use. */
  readonly models?: ReadonlySet<string> | undefined;
  /** Its limits in addition to those of its account; absent: no further limits. */
  readonly rates?: ScopedRates | undefined;
  /** As for its account, whose tiers limit it too. */
  readonly tier?: 'priority' | 'default' | 'flex' | undefined;
  readonly tiers?: ReadonlySet<string> | undefined;
  /** Whether its account's plan pays for its requests. */
  readonly isPlanKey?: boolean | undefined;
  /** Its budget. */
  readonly budget?: Budget | undefined;
  /** Its budgets for single models, as for its account. */
  readonly modelBudgets?: ReadonlyMap<string, Budget> | undefined;
  /** The budget of its user in the account, shared by all of their keys. */
  readonly member?: { readonly id: string; readonly budget: Budget } | undefined;
  /** Tags added to those of each request. */
  readonly tags?: readonly string[] | undefined;
  /** Whether it manages accounts instead of making requests. */
  readonly isManagement?: boolean | undefined;
  readonly expiresAt: number | null;
}

/** Learns the hash of a key that is not live: it may be one that was. */
interface RefusedKey {
  keyHash: string | undefined;
}

interface KnownKey {
  readonly key: LiveKey;
  readonly account: AccountEntry;
  readonly isPaused: boolean;
  readonly hash: string;
  /** The secret before the last rotation. */
  readonly previous: { readonly hash: string; readonly endsAt: number } | undefined;
  /** Whether it has been presented since eviction last passed it over. */
  isUsed: boolean;
}

interface AccountEntry {
  /** Replaced with every change: running requests keep the version they began with. */
  caller: Caller['account'];
  isActive: boolean;
  /** The number of its keys in memory. */
  keys: number;
}

/** The account data from the database that its keys depend on. */
export interface KnownAccount {
  readonly id: string;
  readonly status: AccountStatus;
  readonly models: readonly string[] | null;
  readonly plan: string | null;
  /** JSON; see accounts/key-limits.ts. */
  readonly limits: string | null;
  readonly budget: Budget | null;
  readonly modelBudgets?: readonly ModelBudget[] | null | undefined;
  readonly rates: readonly AccountPrice[];
}

/** What running requests must learn immediately: they end as `revoked`. */
export type Cut =
  | { readonly kind: 'key_revoked' | 'key_paused'; readonly keyId: string }
  | { readonly kind: 'account_suspended'; readonly accountId: string };

/**
 * Live keys in memory, by their hashes, so that authentication costs one HMAC and one lookup and no I/O. The lookup uses a keyed hash that
 * nobody outside can compute, so its timing reveals nothing about existing keys (reliability §3.5).
 *
 * Up to a maximum number of keys, all are in memory: the directory is whole. Beyond that it holds the most recently presented keys, each
 * with its account; any other key is `cold`, and read from the database when presented (key-look-ups.ts).
 */
export class Directory {
  readonly #secret: Secret;
  readonly #now: () => number;
  readonly #keysMax: number;
  /** In eviction order. */
  readonly #keys = new Map<string, KnownKey>();
  readonly #byHash = new Map<string, KnownKey>();
  /** Accounts with a key in memory. */
  readonly #accounts = new Map<string, AccountEntry>();
  readonly #listeners = new Set<(cut: Cut) => void>();
  readonly #reads = new KeyReads();
  #isWhole = true;
  #isTrimming = false;
  /** What is known about keys that are not in memory, while the directory is not whole. */
  readonly unknown = new UnknownKeys();

  constructor(secret: Secret, now: () => number = Date.now, keysMax = Infinity) {
    this.#secret = secret;
    this.#now = now;
    this.#keysMax = keysMax;
  }

  /** The number of keys in memory. */
  get size(): number {
    return this.#keys.size;
  }

  /** The maximum number of keys with which it can still be whole. */
  get keysMax(): number {
    return this.#keysMax;
  }

  /** Whether every key that is not revoked is in memory. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Ids of the keys in memory. */
  ids(): readonly string[] {
    return [...this.#keys.keys()];
  }

  /** Whether a key was made with this directory's secret; any other key would never match. */
  isOwn(key: LoadedKey): boolean {
    return key.pepperId === this.#secret.id;
  }

  /** Throws when any of the keys were made with another secret, because these would never match. */
  refuseStrange(keys: readonly LoadedKey[]): void {
    const strange = keys.filter((key) => !this.isOwn(key));
    if (strange.length === 0) return;
    throw new SecretError(
      `${strange.length} of ${keys.length} API keys in the database were created with another secret (${strange[0]!.pepperId}; ` +
        `this is ${this.#secret.id}, from ${this.#secret.source === 'environment' ? 'TOKENHOUSE_SECRET' : 'the file `secret` in the data folder'}). ` +
        'Restore TOKENHOUSE_SECRET, or the file, to the secret that the keys were created with; or revoke these keys and create new ones.',
    );
  }

  /** Loads keys as the database has them, with the rates of their accounts. Throws like `refuseStrange`. */
  load(keys: readonly LoadedKey[], rates: RatesOfAccounts): void {
    this.refuseStrange(keys);
    for (const key of keys) {
      this.#note(key);
      this.#add(key, rates);
    }
    this.#makeRoom();
  }

  /** The same for changed keys: those not in memory need not be loaded, but their running requests are notified. */
  update(keys: readonly LoadedKey[], rates: RatesOfAccounts): void {
    if (this.#isWhole) {
      this.load(keys, rates);
      return;
    }
    for (const key of keys) {
      this.#note(key);
      if (this.#keys.has(key.id)) this.#add(key, rates);
      else if (key.isPaused === true) this.#report({ kind: 'key_paused', keyId: key.id });
      if (key.accountStatus !== 'active') this.#report({ kind: 'account_suspended', accountId: key.accountId });
    }
  }

  /**
   * Finds the caller of a presented key. `malformed`: the text cannot be a key of this service; `cold`: only the database knows; undefined:
   * the key is not live (never created, revoked, paused, expired, or of a suspended account), or its secret was ended by a rotation. Then
   * `refused` learns its hash.
   */
  find(presented: string, refused?: RefusedKey): Caller | 'malformed' | 'cold' | undefined {
    const text = parseKey(presented);
    if (text === undefined) return 'malformed';
    const hash = lookUpHash(text, this.#secret);
    const known = this.#byHash.get(hash);
    if (known === undefined && !this.#isWhole && !this.unknown.has(hash)) return 'cold';
    if (known !== undefined) {
      known.isUsed = true;
      if (this.#isLive(known, hash)) return { account: known.account.caller, key: known.key };
    }
    if (refused !== undefined) refused.keyHash = hash;
    return undefined;
  }

  /** The caller with a key of this id, for work that it has left here; otherwise as `find`. */
  findById(keyId: string): Caller | 'cold' | undefined {
    const known = this.#keys.get(keyId);
    if (known === undefined) return this.#isWhole ? undefined : 'cold';
    known.isUsed = true;
    return this.#isLive(known, known.hash) ? { account: known.account.caller, key: known.key } : undefined;
  }

  /** The hash by which the database finds a presented key. */
  hashOf(presented: string): string | undefined {
    const text = parseKey(presented);
    return text === undefined ? undefined : lookUpHash(text, this.#secret);
  }

  /** Begins a read of keys from the database outside the change feed. The caller must always end it. */
  beginRead(): KeyRead {
    return this.#reads.begin();
  }

  endRead(read: KeyRead): void {
    this.#reads.end(read);
  }

  /**
   * Adds the keys that a read has found for these hashes, so that `find` can answer for them at least until the next turn of the event
   * loop. Returns the hashes to read again because something has changed since the read began.
   */
  take(
    read: KeyRead,
    hashes: readonly string[],
    keys: readonly LoadedKey[],
    rates: RatesOfAccounts,
  ): readonly string[] {
    const byHash = new Map<string, LoadedKey>();
    for (const key of keys.filter((each) => this.isOwn(each))) for (const hash of hashesOf(key)) byHash.set(hash, key);
    const again: string[] = [];
    for (const hash of hashes) {
      const key = byHash.get(hash);
      if (this.#reads.isOutdated(read, hash, ...(key === undefined ? [] : [key.id, key.accountId]))) again.push(hash);
      else if (key === undefined) this.unknown.noteAbsent(hash);
      else this.#add(key, rates);
    }
    this.#makeRoom();
    return again;
  }

  /** Removes a key that is no longer live in the database. */
  revoke(keyId: string): void {
    this.#reads.changed(keyId);
    // Requests may be running even on a key that is not in memory.
    if (this.#forget(keyId) || !this.#isWhole) this.#report({ kind: 'key_revoked', keyId });
  }

  /** Updates the account to its state in the database. */
  setAccount(account: KnownAccount): void {
    this.#reads.changed(account.id);
    const entry = this.#accounts.get(account.id);
    if (entry !== undefined) this.#set(entry, account);
    else if (account.status !== 'active') this.#report({ kind: 'account_suspended', accountId: account.id });
  }

  /** Forgets everything, because there are more keys than fit or changes were missed. */
  forgetAll(): void {
    this.#isWhole = false;
    this.#reads.allChanged();
    this.unknown.forget();
    this.#keys.clear();
    this.#byHash.clear();
    this.#accounts.clear();
  }

  /** Called when every unrevoked key has been loaded since `forgetAll`, and every change followed. */
  loadedAll(): void {
    this.#isWhole = this.#keys.size <= this.#keysMax;
    if (this.#isWhole) this.unknown.forget();
  }

  /** Calls the listener for each key revoked or paused and each account suspended, until the returned function is called. */
  listen(listener: (cut: Cut) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Notes that a key is new or has changed. */
  #note(key: LoadedKey): void {
    this.#reads.changed(key.id);
    this.#reads.changed(key.accountId);
    if (this.#isWhole || !this.isOwn(key)) return;
    for (const hash of hashesOf(key)) {
      this.#reads.changed(hash);
      this.unknown.noteKey(hash);
    }
  }

  #add(key: LoadedKey, rates: RatesOfAccounts): void {
    const { id, accountId, userId, name, expiresAt, previous, isPaused = false } = key;
    const before = this.#keys.get(id);
    const account = this.#accounts.get(accountId) ?? this.#newAccount(accountId);
    // Incremented before the replaced key is forgotten, so that the account stays.
    account.keys++;
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
        modelBudgets: byModel(key.modelBudgets),
        member: memberOf(key),
        tags: key.tags === undefined || key.tags.length === 0 ? undefined : key.tags,
        isManagement: key.isManagement === true ? true : undefined,
        expiresAt,
      },
      account,
      isPaused,
      hash: textOf(key.hash),
      previous:
        previous === undefined || previous === null
          ? undefined
          : { hash: textOf(previous.hash), endsAt: previous.endsAt },
      isUsed: before?.isUsed ?? true,
    };
    this.#keys.set(id, known);
    this.#byHash.set(known.hash, known);
    if (known.previous !== undefined) this.#byHash.set(known.previous.hash, known);
    if (isPaused && before?.isPaused !== true) this.#report({ kind: 'key_paused', keyId: id });
    this.#set(account, {
      id: accountId,
      status: key.accountStatus,
      models: key.accountModels,
      plan: key.accountPlan,
      limits: key.accountLimits,
      budget: key.accountBudget,
      modelBudgets: key.accountModelBudgets,
      rates: rates.get(accountId) ?? [],
    });
  }

  #newAccount(id: string): AccountEntry {
    const entry = { caller: { id }, isActive: true, keys: 0 };
    this.#accounts.set(id, entry);
    return entry;
  }

  #set(entry: AccountEntry, { id, status, models, plan, limits, budget, modelBudgets, rates }: KnownAccount): void {
    const own = readAccountLimits(limits);
    const { zdrRequired, aliases } = own;
    entry.caller = {
      id,
      models: setOf(models),
      plan: plan ?? undefined,
      limits: scopedRates(own),
      zdrRequired,
      ...tiersOf(own),
      budget: budget ?? undefined,
      modelBudgets: byModel(modelBudgets),
      aliases: aliases === undefined ? undefined : new Map(aliases.map((alias) => [alias.name.toLowerCase(), alias])),
      rates: rates.length === 0 ? undefined : rates,
    };
    const wasActive = entry.isActive;
    entry.isActive = status === 'active';
    if (wasActive && !entry.isActive) this.#report({ kind: 'account_suspended', accountId: id });
  }

  /** Returns false if the key was not in memory. */
  #forget(keyId: string): boolean {
    const known = this.#keys.get(keyId);
    if (known === undefined) return false;
    const { account, hash, previous } = known;
    this.#keys.delete(keyId);
    this.#byHash.delete(hash);
    if (previous !== undefined) this.#byHash.delete(previous.hash);
    if (--account.keys === 0) this.#accounts.delete(account.caller.id);
    return true;
  }

  #isLive({ key, account, isPaused, hash: current, previous }: KnownKey, hash: string): boolean {
    const now = this.#now();
    if (isPaused || (key.expiresAt !== null && now >= key.expiresAt)) return false;
    if (hash !== current && (previous === undefined || now >= previous.endsAt)) return false;
    return account.isActive;
  }

  /** Trims in a later turn, so that callers who waited for a key find it. */
  #makeRoom(): void {
    if (this.#keys.size <= this.#keysMax || this.#isTrimming) return;
    this.#isWhole = false;
    this.#isTrimming = true;
    setImmediate(() => {
      this.#isTrimming = false;
      this.#trim();
    });
  }

  /** Evicts the oldest keys not presented since they were last passed over, passing over at most a few others for each. */
  #trim(): void {
    let passed = (this.#keys.size - this.#keysMax) * passedForEach;
    for (const known of this.#keys.values()) {
      if (this.#keys.size <= this.#keysMax) return;
      const { id } = known.key;
      if (known.isUsed && passed-- > 0) {
        known.isUsed = false;
        this.#keys.delete(id);
        this.#keys.set(id, known);
      } else this.#forget(id);
    }
  }

  #report(cut: Cut): void {
    for (const listener of [...this.#listeners]) listener(cut);
  }
}

/** Bounds the work of trimming when there are many keys and all are in use. */
const passedForEach = 8;

const hashesOf = ({ hash, previous }: LoadedKey): readonly string[] =>
  previous === undefined || previous === null ? [textOf(hash)] : [textOf(hash), textOf(previous.hash)];

const textOf = (hash: Uint8Array): string =>
  Buffer.from(hash.buffer, hash.byteOffset, hash.byteLength).toString('latin1');

function limitsOf(text: string | null): Pick<LiveKey, 'access' | 'rates' | 'isPlanKey' | 'tier' | 'tiers'> {
  if (text === null)
    return { access: undefined, rates: undefined, isPlanKey: undefined, tier: undefined, tiers: undefined };
  const limits = readLimits(text);
  return { access: keyAccess(limits), rates: scopedRates(limits), isPlanKey: limits.planKey, ...tiersOf(limits) };
}

const setOf = (models: readonly string[] | null): ReadonlySet<string> | undefined =>
  models === null ? undefined : new Set(models);

const byModel = (budgets: readonly ModelBudget[] | null | undefined): ReadonlyMap<string, Budget> | undefined =>
  budgets === undefined || budgets === null || budgets.length === 0
    ? undefined
    : new Map(budgets.map(({ modelId, amountMicrocents, per }) => [modelId, { amountMicrocents, per }]));

const memberOf = ({ accountId, userId, memberBudget }: LoadedKey): LiveKey['member'] =>
  userId === null || memberBudget === undefined || memberBudget === null
    ? undefined
    : { id: memberSubject(accountId, userId), budget: memberBudget };
