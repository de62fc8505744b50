import { StoreError } from '../store/store-error.ts';
import { newAccountId } from './base62.ts';
import { checkedBudget, setBudget } from './budget.ts';
import type { Budgeted, BudgetSetting, BudgetWish } from './budget.ts';
import { limitCredit, moveCredit, refundRequest } from './credit.ts';
import type { CreditLimit, CreditLimited, CreditMove, Moved, RequestRefund } from './credit.ts';
import type { AccountPrice } from '../store/queries.ts';
import { faultOfLimits, isLimit, limitMax, printAccountLimits, printLimits, readLimits } from './key-limits.ts';
import type { KeyLimits } from './key-limits.ts';
import { issueKey } from './key.ts';
import { accountMeant, checkedText, OperationError } from './operation.ts';
import { createOwner, makeOwnerLink } from './owner.ts';
import type { OwnerLink, OwnerLinkWish, OwnerMade, OwnerWish } from './owner.ts';
import type { OperationServices } from './operation.ts';

/** What an operator changes while the service runs, or without it: the command line's writes. Plain JSON data. */
export type Operation =
  | { readonly kind: 'create_account'; readonly name: string }
  | {
      readonly kind: 'create_key';
      readonly accountId: string | undefined;
      readonly name: string;
      /** Left out: a legacy key, of nobody in particular. */
      readonly userId?: string | undefined;
      readonly expiresAt: number | undefined;
      /** Instead: so long after it is made, by the clock of whoever makes it. */
      readonly expiresAfterMs?: number | undefined;
      /** Left out: all that the account may use. */
      readonly models?: readonly string[] | undefined;
      /** Left out: none. */
      readonly limits?: KeyLimits | undefined;
      /** Left out: none. */
      readonly budget?: BudgetWish | undefined;
    }
  /** Which models a key or an account may use; without `models` it may use all there are. */
  | { readonly kind: 'allow_key'; readonly keyId: string; readonly models: readonly string[] | undefined }
  | {
      readonly kind: 'allow_account';
      readonly accountId: string | undefined;
      readonly models: readonly string[] | undefined;
    }
  /** Gives an account a plan; without one, none. */
  | { readonly kind: 'plan_account'; readonly accountId: string | undefined; readonly plan: string | undefined }
  /** How many requests of an account may run; left out: what its plan or the configuration says. */
  | {
      readonly kind: 'limit_account';
      readonly accountId: string | undefined;
      readonly concurrencyMax: number | undefined;
    }
  /** Changes what a key is kept to; what is null is nothing from now on, what is left out stays. */
  | {
      readonly kind: 'limit_key';
      readonly keyId: string;
      readonly limits: { readonly [Limit in keyof KeyLimits]?: KeyLimits[Limit] | null };
    }
  /** Names a key anew, or moves its end: milliseconds since 1970, null for never; what is left out stays. */
  | {
      readonly kind: 'edit_key';
      readonly keyId: string;
      readonly name?: string | undefined;
      readonly expiresAt?: number | null | undefined;
      /** Instead, from now on. */
      readonly expiresAfterMs?: number | undefined;
    }
  | BudgetSetting
  /** Prices are microcents per million tokens, as text. */
  | {
      readonly kind: 'set_price';
      readonly accountId: string | undefined;
      readonly model: string;
      readonly input: string;
      readonly output: string;
      /** Left out: the input price. */
      readonly cacheRead: string | undefined;
      /** Left out: from now on. */
      readonly validFrom: number | undefined;
      /** Exclusive; left out: for good. */
      readonly validTo: number | undefined;
    }
  | { readonly kind: 'remove_price'; readonly accountId: string | undefined; readonly model: string }
  | { readonly kind: 'revoke_key'; readonly keyId: string }
  | CreditMove
  | RequestRefund
  | CreditLimit
  | OwnerLinkWish
  | OwnerWish
  | { readonly kind: 'suspend_account' | 'revive_account'; readonly accountId: string };

export type OperationAnswer =
  | { readonly kind: 'account'; readonly accountId: string; readonly name: string }
  /** `key` is shown once and stored nowhere. */
  | {
      readonly kind: 'key';
      readonly keyId: string;
      readonly accountId: string;
      readonly name: string;
      readonly key: string;
    }
  | {
      readonly kind: 'allowed';
      /** Of the key or the account. */
      readonly id: string;
      readonly models: readonly string[] | null;
    }
  | { readonly kind: 'planned'; readonly accountId: string; readonly plan: string | null }
  | { readonly kind: 'account_limited'; readonly accountId: string; readonly concurrencyMax: number | null }
  | { readonly kind: 'key_limited'; readonly keyId: string; readonly limits: KeyLimits }
  | { readonly kind: 'key_edited'; readonly keyId: string; readonly name: string; readonly expiresAt: number | null }
  | Budgeted
  | {
      readonly kind: 'price';
      readonly accountId: string;
      readonly model: string;
      readonly validFrom: number;
      readonly validTo: number | null;
      readonly input: string;
      readonly output: string;
      readonly cacheRead: string;
    }
  | { readonly kind: 'prices_ended'; readonly accountId: string; readonly model: string; readonly ended: number }
  | { readonly kind: 'revoked'; readonly keyId: string; readonly accountId: string; readonly name: string }
  | Moved
  | CreditLimited
  | OwnerLink
  | OwnerMade
  | { readonly kind: 'status'; readonly accountId: string; readonly status: 'active' | 'suspended' };

/** Carries out one operation. It is durable, and in force in this process, when the promise resolves. */
export async function operate(operation: Operation, services: OperationServices): Promise<OperationAnswer> {
  try {
    const answer = await carryOut(operation, services);
    await services.caughtUp?.();
    return answer;
  } catch (error) {
    if (
      error instanceof StoreError &&
      (error.code === 'not_found' ||
        error.code === 'conflict' ||
        error.code === 'insufficient' ||
        error.code === 'invalid')
    ) {
      throw new OperationError(error.message, { cause: error });
    }
    throw error;
  }
}

async function carryOut(operation: Operation, services: OperationServices): Promise<OperationAnswer> {
  const { ledger, desk, secret, newId, directory } = services;
  const at = services.now();
  switch (operation.kind) {
    case 'create_account': {
      const accountId = newAccountId();
      await ledger.createAccount({
        id: accountId,
        name: checkedName(operation.name),
        creditLimitMicrocents: 0n,
        at,
        changeId: newId(),
      });
      return { kind: 'account', accountId, name: operation.name };
    }
    case 'create_key': {
      const accountId = await accountMeant(operation.accountId, desk);
      const issued = issueKey({
        accountId,
        userId: operation.userId === undefined ? null : checkedText(operation.userId, 'A user', nameLengthMax),
        name: checkedName(operation.name),
        secret,
        now: at,
        expiresAt: expiryOf(operation, at),
        models: checkedModels(operation.models),
        limits: checkedLimits(operation.limits),
      });
      const budget = checkedBudget(operation.budget);
      await desk.createKey({ key: issued.row, budget, changeId: newId() });
      const account = await desk.getAccount({ accountId });
      directory?.apply({
        kind: 'key_created',
        key: {
          ...issued.row,
          accountStatus: account?.status ?? 'active',
          accountModels: account?.models ?? null,
          accountPlan: account?.plan ?? null,
          accountLimits: account?.limits ?? null,
          budget,
          accountBudget: await desk.getBudget({ subject: accountId }),
        },
      });
      return { kind: 'key', keyId: issued.row.id, accountId, name: operation.name, key: issued.text };
    }
    case 'allow_key': {
      const models = checkedModels(operation.models);
      const key = await desk.allowKey({ keyId: operation.keyId, models, at, changeId: newId() });
      if (key === undefined)
        throw new OperationError(`There is no live key ${operation.keyId}. List them with: tokenhouse keys list`);
      directory?.apply({ kind: 'key_models', keyId: key.id, models });
      return { kind: 'allowed', id: key.id, models };
    }
    case 'allow_account': {
      const accountId = await accountMeant(operation.accountId, desk);
      const models = checkedModels(operation.models);
      await desk.allowAccount({ accountId, models, at, changeId: newId() });
      directory?.apply({ kind: 'account_models', accountId, models });
      return { kind: 'allowed', id: accountId, models };
    }
    case 'plan_account': {
      const accountId = await accountMeant(operation.accountId, desk);
      const plan = operation.plan === undefined ? null : checkedText(operation.plan, 'A plan', planLengthMax);
      await desk.planAccount({ accountId, plan, at, changeId: newId() });
      directory?.apply({ kind: 'account_plan', accountId, plan });
      return { kind: 'planned', accountId, plan };
    }
    case 'limit_account': {
      const accountId = await accountMeant(operation.accountId, desk);
      const { concurrencyMax } = operation;
      checkRate(concurrencyMax);
      const limits = printAccountLimits({ concurrencyMax });
      await desk.limitAccount({ accountId, limits, at, changeId: newId() });
      directory?.apply({ kind: 'account_limits', accountId, limits });
      return { kind: 'account_limited', accountId, concurrencyMax: concurrencyMax ?? null };
    }
    case 'limit_key': {
      const { keyId } = operation;
      const changed = Object.entries(operation.limits).filter(([, value]) => value !== undefined);
      checkedLimits(Object.fromEntries(changed.filter(([, value]) => value !== null)));
      const key = await desk.limitKey({ keyId, limits: Object.fromEntries(changed), at, changeId: newId() });
      if (key === undefined)
        throw new OperationError(`There is no live key ${keyId}. List them with: tokenhouse keys list`);
      directory?.apply({ kind: 'key_limits', keyId, limits: key.limits });
      return { kind: 'key_limited', keyId, limits: readLimits(key.limits) };
    }
    case 'edit_key': {
      const { keyId, expiresAfterMs } = operation;
      const expiresAt = expiresAfterMs === undefined ? operation.expiresAt : at + expiresAfterMs;
      const name = operation.name === undefined ? undefined : checkedName(operation.name);
      const key = await desk.editKey({ keyId, name, expiresAt, at, changeId: newId() });
      if (key === undefined)
        throw new OperationError(`There is no live key ${keyId}. List them with: tokenhouse keys list`);
      directory?.apply({ kind: 'key_edited', keyId, name: key.name, expiresAt: key.expiresAt });
      return { kind: 'key_edited', keyId, name: key.name, expiresAt: key.expiresAt };
    }
    case 'budget_key':
    case 'budget_account':
      return await setBudget(operation, services);
    case 'set_price': {
      const accountId = await accountMeant(operation.accountId, desk);
      const price = priceOf(operation, accountId, at);
      await desk.addAccountPrice({ price, at, changeId: newId() });
      services.prices?.add(price);
      const { validFrom, validTo, input, output, cacheRead } = price;
      const text = { input: String(input), output: String(output), cacheRead: String(cacheRead) };
      return { kind: 'price', accountId, model: operation.model, validFrom, validTo, ...text };
    }
    case 'remove_price': {
      const accountId = await accountMeant(operation.accountId, desk);
      const modelId = checkedModel(operation.model);
      const ended = await desk.endAccountPrices({ accountId, modelId, at, changeId: newId() });
      services.prices?.end(accountId, modelId, at);
      return { kind: 'prices_ended', accountId, model: operation.model, ended };
    }
    case 'revoke_key': {
      const revoked = await desk.revokeKey({ keyId: operation.keyId, at, changeId: newId() });
      if (revoked === undefined)
        throw new OperationError(`There is no key ${operation.keyId}. List them with: tokenhouse keys list`);
      directory?.apply({ kind: 'key_revoked', keyId: revoked.id });
      return { kind: 'revoked', keyId: revoked.id, accountId: revoked.accountId, name: revoked.name };
    }
    case 'move_credit':
      return moveCredit(operation, services);
    case 'refund_request':
      return refundRequest(operation, services);
    case 'limit_credit':
      return limitCredit(operation, services);
    case 'owner_link':
      return makeOwnerLink(services);
    case 'create_owner':
      return (await createOwner(operation, services))!;
    case 'suspend_account':
    case 'revive_account': {
      const status = operation.kind === 'suspend_account' ? 'suspended' : 'active';
      await ledger.setAccountStatus(operation.accountId, status, at, newId());
      directory?.apply({ kind: 'account_status', accountId: operation.accountId, status });
      return { kind: 'status', accountId: operation.accountId, status };
    }
  }
}

function expiryOf(
  { expiresAt, expiresAfterMs }: Extract<Operation, { kind: 'create_key' }>,
  now: number,
): number | null {
  return expiresAfterMs === undefined ? (expiresAt ?? null) : now + expiresAfterMs;
}

/** As in the configuration: 10¹⁵ microcents for a million tokens. */
const priceMax = 10n ** 15n;

function priceOf(wish: Extract<Operation, { kind: 'set_price' }>, accountId: string, now: number): AccountPrice {
  const input = BigInt(wish.input);
  const output = BigInt(wish.output);
  const cacheRead = wish.cacheRead === undefined ? input : BigInt(wish.cacheRead);
  for (const price of [input, output, cacheRead])
    if (price < 0n || price > priceMax) throw new OperationError(`A price is 0 to ${priceMax} microcents.`);
  // A hold is taken at the input price, and a charge never exceeds its hold (reliability I2).
  if (cacheRead > input) throw new OperationError('Cached tokens may not cost more than uncached ones.');
  const { validFrom = now, validTo } = wish;
  // What has been charged stays charged: rates hold from the start of the requests to come.
  if (validFrom < now) throw new OperationError('Rates cannot begin in the past.');
  if (validTo !== undefined && validTo <= validFrom) throw new OperationError('Rates must end after they begin.');
  return {
    accountId,
    modelId: checkedModel(wish.model),
    validFrom,
    validTo: validTo ?? null,
    input,
    output,
    cacheRead,
  };
}

function checkedLimits(limits: KeyLimits = {}): string | null {
  const fault = faultOfLimits(limits);
  if (fault !== undefined) throw new OperationError(fault);
  return printLimits(limits);
}

const modelsMax = 1000;

/** Lower case, sorted, each once. */
function checkedModels(models: readonly string[] | undefined): readonly string[] | null {
  if (models === undefined) return null;
  if (models.length > modelsMax) throw new OperationError(`At most ${modelsMax} models can be named.`);
  return [...new Set(models.map(checkedModel))].sort();
}

const checkedModel = (id: string): string => checkedText(id, 'The id of a model', modelIdLengthMax).toLowerCase();

const modelIdLengthMax = 128;
const nameLengthMax = 100;
const planLengthMax = 64;

function checkRate(rate: number | undefined): void {
  if (rate !== undefined && !isLimit(rate))
    throw new OperationError(`A limit is a whole number from 1 to ${limitMax}.`);
}

const checkedName = (name: string): string => checkedText(name, 'A name', nameLengthMax);
