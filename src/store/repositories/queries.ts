/**
 * Database queries outside the hot path, one function each, on any dialect. The service runs them on its query worker, the
 * command line on a connection that cannot write. Ids and times are made by the caller.
 */
import {
  sql,
  type Expression,
  type ExpressionBuilder,
  type Kysely,
  type RawBuilder,
  type Selectable,
  type SqlBool,
  type Updateable,
} from 'kysely';
import type { TaxStatus } from '../../tax/tax.ts';
import type { Budget } from '../budget.ts';
import type { AccountStatus, ChangeKind, Database, KeyStatus } from '../database.ts';
import type { Ending, TransferKind, UsageRow } from '../ledger.ts';
import { addNotice, nobody } from './notices.ts';
import { rowsOn } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import { closedBefore, hourOfAll, listOf, sumsOf, tagPattern, type TokenColumn } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { parseUuid, rangesOfPublicId } from '../../platform/ids/uuid.ts';

/** 2026-01-01: no request is older than the program. */
const oldestUsageMs = 1_767_225_600_000;
/** Request ids may run ahead of the clock a little, when it is set back. */
const clockSlackMs = hourMs;
const pageMax = 1000;

type Db = Kysely<Database>;

export interface Account {
  readonly id: string;
  readonly name: string;
  readonly house: boolean;
  readonly status: AccountStatus;
  /** Credits less debits less the cost of what has been settled; holds of running requests are not included. */
  readonly balanceMicrocents: bigint;
  readonly creditLimitMicrocents: bigint;
  /** Ids in lower case; null: every model. */
  readonly models: readonly string[] | null;
  /** Name of its plan. */
  readonly plan: string | null;
  /** JSON object. */
  readonly limits: string | null;
  readonly billing: BillingDetails;
  /** IANA name; its reports use the days of this zone. */
  readonly timeZone: string;
  readonly createdAt: number;
  /** When its users, files and names were erased. */
  readonly deletedAt: number | null;
}

/** The party that invoices are made out to; null where unknown. */
export interface BillingDetails {
  readonly legalName: string | null;
  readonly addressLines: readonly string[] | null;
  /** ISO 3166-1, two capital letters. */
  readonly country: string | null;
  readonly taxId: string | null;
  readonly taxStatus: TaxStatus;
  readonly invoiceEmail: string | null;
}

/** Customers in the order of their creation; `house` adds the other side of their transfers. */
export async function listAccounts(
  db: Db,
  request: { readonly house?: boolean; readonly after?: string; readonly limit?: number },
): Promise<readonly Account[]> {
  let query = db.selectFrom('account').selectAll().select(leased()).orderBy('id').limit(pageOf(request.limit));
  if (request.house !== true) query = query.where('kind', '=', 0n);
  if (request.after !== undefined) query = query.where('id', '>', request.after);
  return (await query.execute()).map(toAccount);
}

/** What replicas have leased of the account and not spent; 0 where one process owns all balances. */
export const leased = () =>
  sql<bigint>`coalesce((select sum(remaining) from credit_lease where credit_lease.account_id = account.id), 0)`.as(
    'leased',
  );

export async function getAccount(db: Db, request: { readonly accountId: string }): Promise<Account | undefined> {
  const row = await db
    .selectFrom('account')
    .selectAll()
    .select(leased())
    .where('id', '=', request.accountId)
    .executeTakeFirst();
  return row === undefined ? undefined : toAccount(row);
}

/** A key without what identifies it: nothing here grants access. */
export interface ApiKey {
  readonly id: string;
  readonly accountId: string;
  readonly name: string;
  readonly display: string;
  /** Its user within the account; null: a legacy key without a user (specification §5.5). */
  readonly userId: string | null;
  readonly status: KeyStatus;
  readonly limits: string | null;
  /** Ids in lower case; null: all that its account may use. */
  readonly models: readonly string[] | null;
  /** What it may do on the account host; null: an inference key. */
  readonly role: string | null;
  readonly isOperator: boolean;
  /** Its requests get these besides their own. */
  readonly tags: readonly string[];
  /** When it was paused; null: it is not. */
  readonly disabledAt: number | null;
  /** Until when the secret before its last rotation works. */
  readonly previousEndsAt: number | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
}

export interface NewKey {
  readonly id: string;
  readonly accountId: string;
  readonly userId: string | null;
  readonly name: string;
  readonly display: string;
  readonly hash: Uint8Array;
  readonly pepperId: string;
  readonly limits: string | null;
  readonly models: readonly string[] | null;
  readonly role?: string | null;
  readonly isOperator?: boolean;
  readonly tags?: readonly string[];
  readonly createdAt: number;
  readonly expiresAt: number | null;
}

/** Live keys of one account at the same time: every process has all of them in memory. */
export const liveKeysMax = 1000;

/** Rejects as `not_found` when there is no such account, and as `conflict` when it has the maximum of live keys. */
export async function createKey(
  db: Db,
  request: { readonly key: NewKey; readonly budget?: Budget | null; readonly changeId: Uint8Array },
): Promise<void> {
  const { key, budget = null, changeId } = request;
  await db.transaction().execute(async (transaction) => {
    // A write, not a read, takes the lock, so that keys that are made at the same time are counted.
    const account = await transaction
      .updateTable('account')
      .set((is) => ({ version: is('version', '+', 1n) }))
      .where('id', '=', key.accountId)
      .where('kind', '=', 0n)
      .where('deleted_at', 'is', null)
      .returning('id')
      .executeTakeFirst();
    if (account === undefined) throw new StoreError('not_found', `there is no account ${key.accountId}`);
    const { live } = await transaction
      .selectFrom('api_key')
      .select((is) => is.fn.countAll<bigint>().as('live'))
      .where('account_id', '=', key.accountId)
      .where('status', '=', 'active')
      .where((is) => is.or([is('expires_at', 'is', null), is('expires_at', '>', BigInt(key.createdAt))]))
      .executeTakeFirstOrThrow();
    if (live >= BigInt(liveKeysMax))
      throw new StoreError('conflict', `An account has at most ${liveKeysMax} live keys. Revoke some first.`);
    await transaction
      .insertInto('api_key')
      .values({
        id: key.id,
        account_id: key.accountId,
        user_id: key.userId,
        name: key.name,
        display: key.display,
        hash: key.hash,
        pepper_id: key.pepperId,
        status: 'active',
        limits: key.limits,
        models: listText(key.models),
        role: key.role ?? null,
        is_operator: key.isOperator === true ? 1 : 0,
        tags: tagsText(key.tags),
        created_at: key.createdAt,
        updated_at: key.createdAt,
        expires_at: key.expiresAt,
        revoked_at: null,
      })
      .execute();
    // Its first request begins the balance: nothing can have been spent before.
    if (budget !== null) {
      const { amountMicrocents: amount, per } = budget;
      await transaction.insertInto('budget').values({ subject: key.id, amount, per, set_at: key.createdAt }).execute();
    }
    await recordChange(transaction, changeId, key.createdAt, 'key_created', key.id);
  });
}

/** Newest first. */
export async function listKeys(
  db: Db,
  request: { readonly accountId?: string; readonly limit?: number },
): Promise<readonly ApiKey[]> {
  let query = db
    .selectFrom('api_key')
    .selectAll()
    .orderBy('created_at', 'desc')
    .orderBy('id')
    .limit(pageOf(request.limit));
  if (request.accountId !== undefined) query = query.where('account_id', '=', request.accountId);
  return (await query.execute()).map(toKey);
}

/**
 * Revokes for good, and notes the event; undefined when there is no such key. A key that was revoked before keeps its first time.
 */
export async function revokeKey(
  db: Db,
  request: { readonly keyId: string; readonly at: number; readonly changeId: Uint8Array },
): Promise<ApiKey | undefined> {
  const { keyId, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const revoked = await transaction
      .updateTable('api_key')
      .set({ status: 'revoked', revoked_at: at, updated_at: at, previous_hash: null, previous_hash_until: null })
      .where('id', '=', keyId)
      .where('status', '=', 'active')
      .executeTakeFirst();
    const row = await transaction.selectFrom('api_key').selectAll().where('id', '=', keyId).executeTakeFirst();
    if (row === undefined) return undefined;
    if (revoked.numUpdatedRows === 1n) {
      await recordChange(transaction, changeId, at, 'key_revoked', keyId);
      await addNotice(rowsOn(transaction), {
        id: `evt_${keyId}`,
        accountId: row.account_id,
        type: 'key.revoked',
        data: JSON.stringify({ key_id: keyId, name: row.name }),
        recipients: nobody,
        isWebhook: true,
        at,
      });
    }
    return toKey(row);
  });
}

/** An entry for the directory of live keys. */
export interface LoadedKey {
  readonly id: string;
  readonly accountId: string;
  readonly userId: string | null;
  readonly accountStatus: AccountStatus;
  readonly name: string;
  readonly hash: Uint8Array;
  readonly pepperId: string;
  readonly limits: string | null;
  readonly models: readonly string[] | null;
  readonly accountModels: readonly string[] | null;
  readonly accountPlan: string | null;
  readonly accountLimits: string | null;
  readonly budget: Budget | null;
  readonly accountBudget: Budget | null;
  readonly expiresAt: number | null;
  /** It manages accounts and makes no requests. */
  readonly isManagement?: boolean;
  readonly tags?: readonly string[];
  readonly isPaused?: boolean;
  /** The secret before its last rotation, and until when it works. */
  readonly previous?: { readonly hash: Uint8Array; readonly endsAt: number } | null;
}

/** A page of the keys that are not revoked, in the order of their ids: the whole set lives in memory, but arrives in pieces. */
export async function loadKeys(
  db: Db,
  request: {
    readonly after?: string;
    /** Only these, at most as many as fit a page. */
    readonly ids?: readonly string[];
    readonly limit?: number;
  },
): Promise<readonly LoadedKey[]> {
  let query = db
    .selectFrom('api_key')
    .innerJoin('account', 'account.id', 'api_key.account_id')
    .leftJoin('budget', 'budget.subject', 'api_key.id')
    .leftJoin('budget as account_budget', 'account_budget.subject', 'account.id')
    .select([
      'api_key.id',
      'api_key.account_id',
      'user_id',
      'account.status',
      'api_key.name',
      'hash',
      'pepper_id',
      'api_key.limits',
      'api_key.models',
      'account.models as account_models',
      'account.plan',
      'account.limits as account_limits',
      'budget.amount',
      'budget.per',
      'account_budget.amount as account_amount',
      'account_budget.per as account_per',
      'expires_at',
      'api_key.role',
      'api_key.tags',
      'api_key.disabled_at',
      'api_key.previous_hash',
      'api_key.previous_hash_until',
    ])
    .where('api_key.status', '=', 'active')
    .where('api_key.id', '>', request.after ?? '')
    .orderBy('api_key.id')
    .limit(pageOf(request.limit ?? request.ids?.length));
  if (request.ids !== undefined) query = query.where('api_key.id', 'in', request.ids);
  return (await query.execute()).map((row) => ({
    id: row.id,
    accountId: row.account_id,
    userId: row.user_id,
    accountStatus: row.status,
    name: row.name,
    hash: row.hash,
    pepperId: row.pepper_id,
    limits: row.limits,
    models: listOf(row.models),
    accountModels: listOf(row.account_models),
    accountPlan: row.plan,
    accountLimits: row.account_limits,
    budget: budgetOf(row.amount, row.per),
    accountBudget: budgetOf(row.account_amount, row.account_per),
    expiresAt: numberOrNull(row.expires_at),
    isManagement: row.role !== null,
    tags: listOf(row.tags) ?? [],
    isPaused: row.disabled_at !== null,
    previous:
      row.previous_hash === null || row.previous_hash_until === null
        ? null
        : { hash: row.previous_hash, endsAt: Number(row.previous_hash_until) },
  }));
}

const budgetOf = (amountMicrocents: bigint | null, per: Budget['per'] | null): Budget | null =>
  amountMicrocents === null || per === null ? null : { amountMicrocents, per };

/** Sets the models that a key may use, out of those of its account; undefined when there is no such live key. */
export async function allowKey(
  db: Db,
  request: {
    readonly keyId: string;
    readonly models: readonly string[] | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<ApiKey | undefined> {
  const { keyId, models, at, changeId } = request;
  return db
    .transaction()
    .execute((transaction) =>
      changeKey(transaction, keyId, { models: listText(models) }, { changeId, at, kind: 'key_models' }),
    );
}

/** Sets the models that the keys of a customer may use; undefined when there is no such account. */
export async function allowAccount(
  db: Db,
  request: {
    readonly accountId: string;
    readonly models: readonly string[] | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<Account | undefined> {
  const { accountId, models, at, changeId } = request;
  return changeAccount(db, accountId, { models: listText(models) }, { changeId, at, kind: 'account_models' });
}

/** Sets or removes the plan of a customer; undefined when there is no such account. */
export async function planAccount(
  db: Db,
  request: {
    readonly accountId: string;
    readonly plan: string | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<Account | undefined> {
  const { accountId, plan, at, changeId } = request;
  return changeAccount(db, accountId, { plan }, { changeId, at, kind: 'account_plan' });
}

/** Sets the limits of a customer, a JSON object; undefined when there is no such account. */
export async function limitAccount(
  db: Db,
  request: {
    readonly accountId: string;
    readonly limits: string | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<Account | undefined> {
  const { accountId, limits, at, changeId } = request;
  return changeAccount(db, accountId, { limits }, { changeId, at, kind: 'account_limits' });
}

/** Renames a customer, or sets its billing details; fields that are undefined stay. undefined when there is no such account. */
export async function editAccount(
  db: Db,
  request: {
    readonly accountId: string;
    readonly name?: string | undefined;
    readonly billing?: { readonly [Detail in keyof BillingDetails]?: BillingDetails[Detail] | undefined } | undefined;
    /** The zone for the days of the account's reports; they are summed up anew in the background. */
    readonly timeZone?: string | undefined;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<Account | undefined> {
  const { accountId, name, billing = {}, timeZone, at, changeId } = request;
  const { legalName, addressLines, country, taxId, taxStatus, invoiceEmail } = billing;
  const set = {
    ...(name === undefined ? {} : { name }),
    ...(legalName === undefined ? {} : { legal_name: legalName }),
    ...(addressLines === undefined ? {} : { address_lines: listText(addressLines) }),
    ...(country === undefined ? {} : { country }),
    ...(taxId === undefined ? {} : { tax_id: taxId }),
    ...(taxStatus === undefined ? {} : { tax_status: taxStatus }),
    ...(invoiceEmail === undefined ? {} : { invoice_email: invoiceEmail }),
    ...(timeZone === undefined ? {} : { time_zone: timeZone }),
  };
  return changeAccount(db, accountId, set, { changeId, at, kind: 'account_edited' });
}

function changeAccount(
  db: Db,
  accountId: string,
  set: Pick<
    Updateable<Database['account']>,
    | 'models'
    | 'plan'
    | 'limits'
    | 'name'
    | 'legal_name'
    | 'address_lines'
    | 'country'
    | 'tax_id'
    | 'tax_status'
    | 'invoice_email'
    | 'time_zone'
  >,
  { changeId, at, kind }: { readonly changeId: Uint8Array; readonly at: number; readonly kind: ChangeKind },
): Promise<Account | undefined> {
  return db.transaction().execute(async (transaction) => {
    const row = await transaction
      .updateTable('account')
      .set((is) => ({ ...set, version: is('version', '+', 1n) }))
      .where('id', '=', accountId)
      .where('kind', '=', 0n)
      .where('deleted_at', 'is', null)
      .returningAll()
      .returning(leased())
      .executeTakeFirst();
    if (row === undefined) return undefined;
    await recordChange(transaction, changeId, at, kind, accountId);
    return toAccount(row);
  });
}

/** Sets some of the limits of a live key; null removes one. undefined when there is no such key. */
export async function limitKey(
  db: Db,
  request: {
    readonly keyId: string;
    readonly limits: Readonly<Record<string, unknown>>;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<ApiKey | undefined> {
  const { keyId, limits, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const live = transaction.selectFrom('api_key').select('limits').where('id', '=', keyId);
    const known = await live.where('status', '=', 'active').executeTakeFirst();
    if (known === undefined) return undefined;
    const limitsNow = limitsText(known.limits, limits);
    return changeKey(transaction, keyId, { limits: limitsNow }, { changeId, at, kind: 'key_limits' });
  });
}

/** Changes the details of a live key, all at once; fields that are undefined stay. undefined when there is no such key. */
export async function editKey(
  db: Db,
  request: {
    readonly keyId: string;
    readonly name?: string | undefined;
    /** null: never. */
    readonly expiresAt?: number | null | undefined;
    readonly models?: readonly string[] | null | undefined;
    /** Those that are null are removed. */
    readonly limits?: Readonly<Record<string, unknown>> | undefined;
    readonly tags?: readonly string[] | undefined;
    /** Paused, or not. A key that was paused before keeps its first time. */
    readonly disabled?: boolean | undefined;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<ApiKey | undefined> {
  const { keyId, name, expiresAt, models, limits, tags, disabled, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const known = await transaction
      .selectFrom('api_key')
      .select(['limits', 'disabled_at'])
      .where('id', '=', keyId)
      .where('status', '=', 'active')
      .executeTakeFirst();
    if (known === undefined) return undefined;
    const set = {
      ...(name === undefined ? {} : { name }),
      ...(expiresAt === undefined ? {} : { expires_at: expiresAt }),
      ...(models === undefined ? {} : { models: listText(models) }),
      ...(limits === undefined ? {} : { limits: limitsText(known.limits, limits) }),
      ...(tags === undefined ? {} : { tags: tagsText(tags) }),
      ...(disabled === undefined ? {} : { disabled_at: disabled ? (known.disabled_at ?? at) : null }),
    };
    return changeKey(transaction, keyId, set, { changeId, at, kind: 'key_edited' });
  });
}

/**
 * Gives a live key another secret; the current one works on until a time, or no longer (null). An earlier one that still worked
 * ends. undefined when there is no such key.
 */
export async function rotateKey(
  db: Db,
  request: {
    readonly keyId: string;
    readonly hash: Uint8Array;
    readonly pepperId: string;
    readonly display: string;
    readonly previousEndsAt: number | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<ApiKey | undefined> {
  const { keyId, hash, pepperId, display, previousEndsAt, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const row = await transaction
      .updateTable('api_key')
      .set((is) => ({
        previous_hash: previousEndsAt === null ? null : is.ref('hash'),
        previous_hash_until: previousEndsAt,
        hash,
        pepper_id: pepperId,
        display,
        updated_at: at,
      }))
      .where('id', '=', keyId)
      .where('status', '=', 'active')
      .returningAll()
      .executeTakeFirst();
    if (row === undefined) return undefined;
    await recordChange(transaction, changeId, at, 'key_rotated', keyId);
    return toKey(row);
  });
}

function limitsText(before: string | null, changed: Readonly<Record<string, unknown>>): string | null {
  const known = before === null ? {} : (JSON.parse(before) as Readonly<Record<string, unknown>>);
  const next = Object.entries({ ...known, ...changed }).filter(([, value]) => value !== null);
  return next.length === 0 ? null : JSON.stringify(Object.fromEntries(next));
}

/** Changes a live key; undefined when there is no such key. */
async function changeKey(
  transaction: Db,
  keyId: string,
  set: Pick<Updateable<Database['api_key']>, 'models' | 'limits' | 'name' | 'expires_at' | 'tags' | 'disabled_at'>,
  { changeId, at, kind }: { readonly changeId: Uint8Array; readonly at: number; readonly kind: ChangeKind },
): Promise<ApiKey | undefined> {
  const row = await transaction
    .updateTable('api_key')
    .set({ ...set, updated_at: at })
    .where('id', '=', keyId)
    .where('status', '=', 'active')
    .returningAll()
    .executeTakeFirst();
  if (row === undefined) return undefined;
  await recordChange(transaction, changeId, at, kind, keyId);
  return toKey(row);
}

/** What an account pays for a model instead of the list prices, in microcents per million tokens. */
export interface AccountPrice {
  readonly accountId: string;
  /** In lower case. */
  readonly modelId: string;
  readonly validFrom: number;
  /** Exclusive; null: for good. */
  readonly validTo: number | null;
  readonly input: bigint;
  readonly output: bigint;
  readonly cacheRead: bigint;
}

/** Adds rates. Rates with another beginning stay: at each moment those that began last apply. */
export async function addAccountPrice(
  db: Db,
  request: { readonly price: AccountPrice; readonly at: number; readonly changeId: Uint8Array },
): Promise<void> {
  const { price, at, changeId } = request;
  await db.transaction().execute(async (transaction) => {
    const account = await transaction
      .selectFrom('account')
      .select('kind')
      .where('id', '=', price.accountId)
      .executeTakeFirst();
    if (account?.kind !== 0n) throw new StoreError('not_found', `there is no account ${price.accountId}`);
    const begins = await transaction
      .selectFrom('account_price')
      .select('valid_from')
      .where('account_id', '=', price.accountId)
      .where('model_id', '=', price.modelId)
      .where('valid_from', '=', BigInt(price.validFrom))
      .executeTakeFirst();
    if (begins !== undefined)
      throw new StoreError('conflict', 'Rates that start at that very time exist already. Remove them first.');
    await transaction
      .insertInto('account_price')
      .values({
        account_id: price.accountId,
        model_id: price.modelId,
        valid_from: price.validFrom,
        valid_to: price.validTo,
        input_price: price.input,
        output_price: price.output,
        cache_read_price: price.cacheRead,
      })
      .execute();
    await recordChange(transaction, changeId, at, 'account_price', price.accountId);
  });
}

/** Ends an account's rates for a model: those in force stop now, future ones never begin. Returns how many. */
export async function endAccountPrices(
  db: Db,
  request: {
    readonly accountId: string;
    readonly modelId: string;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<number> {
  const { accountId, modelId, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const begun = await transaction
      .updateTable('account_price')
      .set({ valid_to: at })
      .where('account_id', '=', accountId)
      .where('model_id', '=', modelId)
      .where('valid_from', '<', BigInt(at))
      .where((is) => is.or([is('valid_to', 'is', null), is('valid_to', '>', BigInt(at))]))
      .executeTakeFirst();
    const toCome = await transaction
      .deleteFrom('account_price')
      .where('account_id', '=', accountId)
      .where('model_id', '=', modelId)
      .where('valid_from', '>=', BigInt(at))
      .executeTakeFirst();
    const ended = Number(begun.numUpdatedRows + toCome.numDeletedRows);
    if (ended > 0) await recordChange(transaction, changeId, at, 'account_price', accountId);
    return ended;
  });
}

/** Rates that are or will be in force at a time, in pages by account, model and beginning. */
export async function listAccountPrices(
  db: Db,
  request: {
    readonly accountId?: string;
    readonly endingAfter: number;
    readonly after?: Pick<AccountPrice, 'accountId' | 'modelId' | 'validFrom'>;
    readonly limit?: number;
  },
): Promise<readonly AccountPrice[]> {
  const { accountId, endingAfter, after } = request;
  let query = db
    .selectFrom('account_price')
    .selectAll()
    .where((is) => is.or([is('valid_to', 'is', null), is('valid_to', '>', BigInt(endingAfter))]))
    .orderBy('account_id')
    .orderBy('model_id')
    .orderBy('valid_from')
    .limit(pageOf(request.limit));
  if (accountId !== undefined) query = query.where('account_id', '=', accountId);
  if (after !== undefined) {
    query = query.where((is) =>
      is(
        is.refTuple('account_id', 'model_id', 'valid_from'),
        '>',
        is.tuple(after.accountId, after.modelId, BigInt(after.validFrom)),
      ),
    );
  }
  return (await query.execute()).map((row) => ({
    accountId: row.account_id,
    modelId: row.model_id,
    validFrom: Number(row.valid_from),
    validTo: numberOrNull(row.valid_to),
    input: row.input_price,
    output: row.output_price,
    cacheRead: row.cache_read_price,
  }));
}

export interface TransferRow {
  readonly id: Uint8Array;
  readonly debitAccount: string;
  readonly creditAccount: string;
  readonly amountMicrocents: bigint;
  readonly kind: TransferKind;
  readonly reference: string | null;
  readonly by: string;
  readonly at: number;
}

/** Transfers from and to an account, newest first. */
export async function listTransfers(
  db: Db,
  request: { readonly accountId: string; readonly limit?: number },
): Promise<readonly TransferRow[]> {
  const rows = await db
    .selectFrom('transfer')
    .selectAll()
    .where((is) => is.or([is('debit_account', '=', request.accountId), is('credit_account', '=', request.accountId)]))
    .orderBy('at', 'desc')
    .orderBy('id', 'desc')
    .limit(pageOf(request.limit))
    .execute();
  return rows.map((row) => ({
    id: row.id,
    debitAccount: row.debit_account,
    creditAccount: row.credit_account,
    amountMicrocents: row.amount,
    kind: row.kind as TransferKind,
    reference: row.reference,
    by: row.by,
    at: Number(row.at),
  }));
}

/** Selects usage. Times are those of the request's end: `from` is inclusive, `to` exclusive. */
export interface UsageFilter {
  readonly accountId?: string;
  readonly keyId?: string;
  readonly modelId?: string;
  /** One of the labels of the request. */
  readonly tag?: string;
  readonly from?: number;
  readonly to?: number;
}

/** The last row of a page; the next page starts after it. */
export interface UsageCursor {
  readonly endedAt: number;
  readonly requestId: Uint8Array;
}

/** Newest first: by end within an account, by start (the request id) over all accounts. Both walk an index. */
export async function listUsage(
  db: Db,
  request: UsageFilter & { readonly before?: UsageCursor; readonly limit?: number },
): Promise<readonly UsageRow[]> {
  const { accountId, before } = request;
  let query = db
    .selectFrom('usage')
    .selectAll()
    .where(matching(request))
    .where(inMonthsOf(db, request))
    .limit(pageOf(request.limit));
  if (accountId !== undefined) {
    query = query.orderBy('ended_at', 'desc').orderBy('request_id', 'desc');
    if (before !== undefined) {
      query = query.where((is) =>
        is(is.refTuple('ended_at', 'request_id'), '<', is.tuple(BigInt(before.endedAt), before.requestId)),
      );
    }
  } else {
    query = query.orderBy('request_id', 'desc');
    if (before !== undefined) query = query.where('request_id', '<', before.requestId);
  }
  return (await query.execute()).map(toUsageRow);
}

/**
 * Finds requests of an account by any id that a user may have: the id from `x-request-id` (`req_…`, or `client_…` and what
 * followed it), the id that the client sent, or the UUID of the ledger. Public ids are short, so there may be several.
 */
export async function findUsage(
  db: Db,
  request: { readonly accountId: string; readonly id: string; readonly now?: number },
): Promise<readonly UsageRow[]> {
  const { accountId, id, now = Date.now() } = request;
  const all = db.selectFrom('usage').selectAll().orderBy('request_id', 'desc').limit(20);
  const of = all.where('account_id', '=', accountId);
  const uuid = parseUuid(id);
  if (uuid !== undefined) {
    const rows = await of.where('request_id', '=', uuid).execute();
    if (rows.length > 0) return rows.map(toUsageRow);
  }
  for (const { from, below } of rangesOfPublicId(id, oldestUsageMs, now + clockSlackMs)) {
    const rows = await all
      // An expression, so that the planner takes the millisecond of the key instead of all that the account has.
      .where(sql`coalesce(account_id, '')`, '=', accountId)
      .where('public_id', '=', id)
      .where('request_id', '>=', from)
      .where('request_id', '<', below)
      .execute();
    if (rows.length > 0) return rows.map(toUsageRow);
  }
  const sent = id.startsWith('client_') ? [id, id.slice('client_'.length)] : [id];
  return (await of.where('client_id', 'in', sent).execute()).map(toUsageRow);
}

/** Sums of usage. `group` is the model, the key, the account or the start of the UTC day, as requested; empty for one total. */
export interface UsageSum {
  readonly group: string;
  readonly requests: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  readonly costMicrocents: bigint;
  readonly unchargedMicrocents: bigint;
}

/**
 * Adds usage up between two times. Whole hours that are closed come from usage_hour, the ends and the open hours from
 * usage itself: 2 ms instead of 400 for the largest account's month in ten million rows.
 */
export async function sumUsage(
  db: Db,
  request: UsageFilter & {
    readonly from: number;
    readonly to: number;
    readonly by?: 'model' | 'key' | 'account' | 'day';
  },
): Promise<readonly UsageSum[]> {
  const { from, to, by } = request;
  return (
    db
      .transaction()
      // One snapshot for both tables: the job may move rows from one part to the other. SQLite has no other kind.
      .setAccessMode('read only')
      .setIsolationLevel('repeatable read')
      .execute(async (transaction) => {
        const closed = await closedBefore(transaction);
        const hoursFrom = Math.min(Math.ceil(from / hourMs) * hourMs, to);
        const hoursTo = Math.max(hoursFrom, Math.min(Math.floor(to / hourMs) * hourMs, closed));
        const parts = [
          ...(await sumRaw(transaction, { ...request, to: hoursFrom }, by)),
          ...(await sumHours(transaction, { ...request, from: hoursFrom, to: hoursTo }, by)),
          ...(await sumRaw(transaction, { ...request, from: hoursTo }, by)),
        ];
        return addUp(parts);
      })
  );
}

/**
 * Adds usage up between two times by the labels of its requests: one with several labels counts under each, one without under
 * none. Only usage has labels, so it costs a look at each row of the span.
 */
export async function sumUsageByTag(
  db: Db,
  request: UsageFilter & { readonly from: number; readonly to: number },
): Promise<readonly UsageSum[]> {
  const rows = await rawUsage(db, request)
    .where('tags', 'is not', null)
    .select((of) => of.ref('tags').$notNull().as('tags'))
    .select(sumsOf(sql`count(*)`))
    .groupBy('tags')
    .execute();
  return addUp(rows.flatMap(({ tags, ...sums }) => listOf(tags)!.map((group) => ({ ...sums, group }))));
}

type Grouping = 'model' | 'key' | 'account' | 'day' | undefined;
type SumRow = Readonly<Record<'requests' | TokenColumn | 'cost' | 'uncharged', bigint>> & {
  readonly group: string | bigint;
};

function sumRaw(
  db: Db,
  filter: UsageFilter & { readonly from: number; readonly to: number },
  by: Grouping,
): Promise<readonly SumRow[]> {
  if (filter.from >= filter.to) return Promise.resolve([]);
  const group = groupOf(by, 'ended_at');
  return rawUsage(db, filter)
    .select(group.as('group'))
    .select(sumsOf(sql`count(*)`))
    .groupBy(group)
    .execute();
}

function rawUsage(db: Db, filter: UsageFilter & { readonly from: number; readonly to: number }) {
  let query = db
    .selectFrom('account')
    .crossJoin('usage') // by account, as in sumUsageByHour
    .whereRef('usage.account_id', '=', 'account.id')
    .where('ended_at', '>=', BigInt(filter.from))
    .where('ended_at', '<', BigInt(filter.to))
    .where(inMonthsOf(db, filter));
  if (filter.accountId !== undefined) query = query.where('account.id', '=', filter.accountId);
  if (filter.keyId !== undefined) query = query.where('key_id', '=', filter.keyId);
  if (filter.modelId !== undefined) query = query.where('model_id', '=', filter.modelId);
  return query;
}

function sumHours(
  db: Db,
  filter: UsageFilter & { readonly from: number; readonly to: number },
  by: Grouping,
): Promise<readonly SumRow[]> {
  if (filter.from >= filter.to) return Promise.resolve([]);
  const group = groupOf(by, 'hour');
  const hour = filter.accountId === undefined ? hourOfAll : sql<bigint>`hour`;
  let query = db
    .selectFrom('usage_hour')
    .select(group.as('group'))
    .select(sumsOf(sql`sum(requests)`))
    .where(hour, '>=', BigInt(filter.from))
    .where(hour, '<', BigInt(filter.to))
    .groupBy(group);
  if (filter.accountId !== undefined) query = query.where('account_id', '=', filter.accountId);
  if (filter.keyId !== undefined) query = query.where('key_id', '=', filter.keyId);
  if (filter.modelId !== undefined) query = query.where('model_id', '=', filter.modelId);
  return query.execute();
}

function groupOf(by: Grouping, timeColumn: 'ended_at' | 'hour'): RawBuilder<string | bigint> {
  switch (by) {
    case 'model':
      return sql<string>`model_id`;
    case 'key':
      return sql<string>`key_id`;
    case 'account':
      return sql<string>`account_id`;
    case 'day':
      return sql<bigint>`${sql.ref(timeColumn)} - ${sql.ref(timeColumn)} % ${sql.lit(24 * hourMs)}`;
    case undefined:
      return sql<string>`cast('' as text)`; // PostgreSQL refuses a bare constant in group by
  }
}

function addUp(rows: readonly SumRow[]): readonly UsageSum[] {
  const sums = new Map<string, UsageSum>();
  for (const row of rows) {
    const group = String(row.group);
    const sum = sums.get(group);
    sums.set(group, {
      group,
      requests: (sum?.requests ?? 0) + Number(row.requests),
      promptTokens: (sum?.promptTokens ?? 0) + Number(row.prompt_tokens),
      cachedTokens: (sum?.cachedTokens ?? 0) + Number(row.cached_tokens),
      completionTokens: (sum?.completionTokens ?? 0) + Number(row.completion_tokens),
      reasoningTokens: (sum?.reasoningTokens ?? 0) + Number(row.reasoning_tokens),
      costMicrocents: (sum?.costMicrocents ?? 0n) + row.cost,
      unchargedMicrocents: (sum?.unchargedMicrocents ?? 0n) + row.uncharged,
    });
  }
  return [...sums.values()].sort((a, b) => (a.group < b.group ? -1 : 1));
}

function matching(filter: UsageFilter) {
  return (is: ExpressionBuilder<Database, 'usage'>): Expression<SqlBool> => {
    const conditions: Expression<SqlBool>[] = [];
    if (filter.accountId !== undefined) conditions.push(is('account_id', '=', filter.accountId));
    if (filter.keyId !== undefined) conditions.push(is('key_id', '=', filter.keyId));
    if (filter.modelId !== undefined) conditions.push(is('model_id', '=', filter.modelId));
    if (filter.tag !== undefined) conditions.push(sql<SqlBool>`tags like ${tagPattern(filter.tag)} escape '!'`);
    if (filter.from !== undefined) conditions.push(is('ended_at', '>=', BigInt(filter.from)));
    if (filter.to !== undefined) conditions.push(is('ended_at', '<', BigInt(filter.to)));
    return is.and(conditions);
  };
}

async function recordChange(db: Db, id: Uint8Array, at: number, kind: ChangeKind, ref: string): Promise<void> {
  await db.insertInto('change').values({ id, at, kind, ref }).execute();
}

function pageOf(limit: number | undefined): number {
  return Math.max(1, Math.min(Math.trunc(limit ?? 100), pageMax));
}

export function toAccount(row: Selectable<Database['account']> & { readonly leased: bigint }): Account {
  return {
    id: row.id,
    name: row.name,
    house: row.kind !== 0n,
    status: row.status,
    balanceMicrocents: row.available + row.leased,
    creditLimitMicrocents: row.credit_limit,
    models: listOf(row.models),
    plan: row.plan,
    limits: row.limits,
    billing: {
      legalName: row.legal_name,
      addressLines: listOf(row.address_lines),
      country: row.country,
      taxId: row.tax_id,
      taxStatus: row.tax_status,
      invoiceEmail: row.invoice_email,
    },
    timeZone: row.time_zone,
    createdAt: Number(row.created_at),
    deletedAt: numberOrNull(row.deleted_at),
  };
}

export function toKey(row: Selectable<Database['api_key']>): ApiKey {
  return {
    id: row.id,
    accountId: row.account_id,
    name: row.name,
    display: row.display,
    userId: row.user_id,
    status: row.status,
    limits: row.limits,
    models: listOf(row.models),
    role: row.role,
    isOperator: row.is_operator !== 0n,
    tags: listOf(row.tags) ?? [],
    disabledAt: numberOrNull(row.disabled_at),
    previousEndsAt: numberOrNull(row.previous_hash_until),
    createdAt: Number(row.created_at),
    updatedAt: Number(row.updated_at ?? row.created_at),
    expiresAt: numberOrNull(row.expires_at),
    revokedAt: numberOrNull(row.revoked_at),
  };
}

export function toUsageRow(row: Selectable<Database['usage']>): UsageRow {
  return {
    requestId: row.request_id,
    publicId: row.public_id,
    clientId: row.client_id,
    accountId: row.account_id,
    keyId: row.key_id,
    modelId: row.model_id,
    api: row.api,
    streamed: row.streamed !== 0n,
    startedAt: Number(row.started_at),
    endedAt: Number(row.ended_at),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    reasoningTokens: Number(row.reasoning_tokens),
    costMicrocents: row.cost,
    unchargedMicrocents: row.uncharged,
    holdMicrocents: row.hold,
    ending: row.ending as Ending,
    finish: row.finish,
    errorCode: row.error_code,
    counted: row.counted !== 0n,
    inputPrice: row.input_price,
    outputPrice: row.output_price,
    cacheReadPrice: row.cache_read_price,
    backend: row.backend,
    firstTokenMs: numberOrNull(row.first_token_ms),
    totalMs: Number(row.total_ms),
    tags: row.tags,
    plan: row.plan,
    keyBudget: row.key_budget,
    accountBudget: row.account_budget,
    ...(row.zdr === null ? {} : { zdr: row.zdr !== 0n }),
  };
}

const tagsText = (tags: readonly string[] | undefined): string | null =>
  tags === undefined || tags.length === 0 ? null : JSON.stringify(tags);

const listText = (list: readonly string[] | null): string | null => (list === null ? null : JSON.stringify(list));

function numberOrNull(value: bigint | null): number | null {
  return value === null ? null : Number(value);
}
