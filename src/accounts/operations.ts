import { StoreError } from '../store/store-error.ts';
import { checkedBudget, setBudget } from './budget.ts';
import { limitCredit, moveCredit, refundRequest } from './credit.ts';
import type { AccountPrice } from '../store/repositories/queries.ts';
import { timeZoneNamed } from '../platform/calendar/time-zone.ts';
import { faultOfLimits, isLimit, limitMax, printAccountLimits, printLimits, readLimits } from './key-limits.ts';
import type { KeyLimits } from './key-limits.ts';
import { beginEntry } from './audit.ts';
import { checkedBilling } from './billing-details.ts';
import { createAccount } from './create-account.ts';
import type { LimitsChange, Operation, OperationAnswer } from './operation-kinds.ts';
import { deleteAccount } from './delete-account.ts';
import { displayOf, hashKey, issueKey, newKey } from './key.ts';
import { accountMeant, checkedText, OperationError } from './operation.ts';
import { createOwner, makeOwnerLink } from './owner.ts';
import type { OperationServices } from './operation.ts';
import { releasePerson } from './release-person.ts';
import { roles } from './role.ts';
import type { Role } from './role.ts';
import { isTag, tagRule, tagsMax } from './tags.ts';

/** How long an earlier secret may work beside the one that a rotation made: seven days. */
export const overlapMsMax = 7 * 86_400_000;

/** Carries out one operation. When the promise resolves, it is durable, in force in this process, and in the audit log. */
export async function operate(operation: Operation, services: OperationServices): Promise<OperationAnswer> {
  const entry = await beginEntry(operation, services);
  let answer: OperationAnswer;
  try {
    answer = await carryOut(operation, services);
    await services.caughtUp?.();
  } catch (error) {
    const mapped = mappedError(error);
    await entry.complete(mapped instanceof OperationError ? 'refused' : 'failed');
    throw mapped;
  }
  await entry.complete('done', answer);
  return answer;
}

/** Errors that the user can fix become readable messages. */
function mappedError(error: unknown): unknown {
  const isWrong =
    error instanceof StoreError &&
    (error.code === 'not_found' ||
      error.code === 'conflict' ||
      error.code === 'insufficient' ||
      error.code === 'invalid');
  return isWrong ? new OperationError(error.message, { cause: error }) : error;
}

async function carryOut(operation: Operation, services: OperationServices): Promise<OperationAnswer> {
  const { ledger, repositories, secret, newId, directory } = services;
  const at = services.now();
  switch (operation.kind) {
    case 'create_account':
      return createAccount(operation, services, operate);
    case 'create_key': {
      const accountId = await accountMeant(operation.accountId, repositories);
      const issued = issueKey({
        accountId,
        userId: operation.userId === undefined ? null : checkedText(operation.userId, 'A user', nameLengthMax),
        name: checkedName(operation.name),
        secret,
        now: at,
        expiresAt: expiryOf(operation, at),
        models: checkedModels(operation.models),
        limits: checkedLimits(operation.limits),
        tags: checkedTags(operation.tags),
        ...managementOf(operation),
      });
      const budget = checkedBudget(operation.budget);
      await repositories.createKey({ key: issued.row, budget, changeId: newId() });
      const account = await repositories.getAccount({ accountId });
      directory?.apply({
        kind: 'key_created',
        key: {
          ...issued.row,
          accountStatus: account?.status ?? 'active',
          accountModels: account?.models ?? null,
          accountPlan: account?.plan ?? null,
          accountLimits: account?.limits ?? null,
          budget,
          accountBudget: await repositories.getBudget({ subject: accountId }),
          isManagement: issued.row.role !== null,
        },
      });
      return { kind: 'key', keyId: issued.row.id, accountId, name: operation.name, key: issued.text };
    }
    case 'allow_key': {
      const models = checkedModels(operation.models);
      const key = await repositories.allowKey({ keyId: operation.keyId, models, at, changeId: newId() });
      if (key === undefined) throw noLiveKey(operation.keyId);
      directory?.apply({ kind: 'key_models', keyId: key.id, models });
      return { kind: 'allowed', id: key.id, models };
    }
    case 'allow_account': {
      const accountId = await accountMeant(operation.accountId, repositories);
      const models = checkedModels(operation.models);
      await repositories.allowAccount({ accountId, models, at, changeId: newId() });
      directory?.apply({ kind: 'account_models', accountId, models });
      return { kind: 'allowed', id: accountId, models };
    }
    case 'plan_account': {
      const accountId = await accountMeant(operation.accountId, repositories);
      const plan = operation.plan === undefined ? null : checkedText(operation.plan, 'A plan', planLengthMax);
      await repositories.planAccount({ accountId, plan, at, changeId: newId() });
      directory?.apply({ kind: 'account_plan', accountId, plan });
      return { kind: 'planned', accountId, plan };
    }
    case 'limit_account': {
      const accountId = await accountMeant(operation.accountId, repositories);
      const { concurrencyMax } = operation;
      checkRate(concurrencyMax);
      const limits = printAccountLimits({ concurrencyMax });
      await repositories.limitAccount({ accountId, limits, at, changeId: newId() });
      directory?.apply({ kind: 'account_limits', accountId, limits });
      return { kind: 'account_limited', accountId, concurrencyMax: concurrencyMax ?? null };
    }
    case 'limit_key': {
      const { keyId } = operation;
      const key = await repositories.limitKey({
        keyId,
        limits: checkedChange(operation.limits),
        at,
        changeId: newId(),
      });
      if (key === undefined) throw noLiveKey(keyId);
      directory?.apply({ kind: 'key_limits', keyId, limits: key.limits });
      return { kind: 'key_limited', keyId, limits: readLimits(key.limits) };
    }
    case 'edit_key': {
      const { keyId, expiresAfterMs, models, limits, tags, disabled } = operation;
      const key = await repositories.editKey({
        keyId,
        name: operation.name === undefined ? undefined : checkedName(operation.name),
        expiresAt: expiresAfterMs === undefined ? operation.expiresAt : at + expiresAfterMs,
        models: models === undefined ? undefined : checkedModels(models ?? undefined),
        limits: limits === undefined ? undefined : checkedChange(limits),
        tags: tags === undefined ? undefined : checkedTags(tags),
        disabled,
        at,
        changeId: newId(),
      });
      if (key === undefined) throw noLiveKey(keyId);
      await followKey(keyId, services);
      return { kind: 'key_edited', keyId, name: key.name, expiresAt: key.expiresAt, disabled: key.disabledAt !== null };
    }
    case 'rotate_key': {
      const { keyId, overlapMs } = operation;
      if (!Number.isSafeInteger(overlapMs) || overlapMs < 0 || overlapMs > overlapMsMax)
        throw new OperationError('An earlier secret works on for 0 seconds to 7 days.');
      const text = newKey();
      const key = await repositories.rotateKey({
        keyId,
        hash: hashKey(text, secret),
        pepperId: secret.id,
        display: displayOf(text),
        previousEndsAt: overlapMs === 0 ? null : at + overlapMs,
        at,
        changeId: newId(),
      });
      if (key === undefined) throw noLiveKey(keyId);
      await followKey(keyId, services);
      const { accountId, name, previousEndsAt } = key;
      return { kind: 'rotated', keyId, accountId, name, key: text, previousEndsAt };
    }
    case 'edit_account': {
      const accountId = await accountMeant(operation.accountId, repositories);
      const { name, billing, timeZone } = operation;
      const account = await repositories.editAccount({
        accountId,
        name: name === undefined ? undefined : checkedName(name),
        billing: billing === undefined ? undefined : checkedBilling(billing),
        timeZone: timeZone === undefined ? undefined : checkedTimeZone(timeZone),
        at,
        changeId: newId(),
      });
      if (account === undefined) throw new OperationError(`There is no account ${accountId}.`);
      return { kind: 'account_edited', accountId, name: account.name };
    }
    case 'budget_key':
    case 'budget_account':
      return await setBudget(operation, services);
    case 'set_price': {
      const accountId = await accountMeant(operation.accountId, repositories);
      const price = priceOf(operation, accountId, at);
      await repositories.addAccountPrice({ price, at, changeId: newId() });
      services.prices?.add(price);
      const { validFrom, validTo, input, output, cacheRead } = price;
      const text = { input: String(input), output: String(output), cacheRead: String(cacheRead) };
      return { kind: 'price', accountId, model: operation.model, validFrom, validTo, ...text };
    }
    case 'remove_price': {
      const accountId = await accountMeant(operation.accountId, repositories);
      const modelId = checkedModel(operation.model);
      const ended = await repositories.endAccountPrices({ accountId, modelId, at, changeId: newId() });
      services.prices?.end(accountId, modelId, at);
      return { kind: 'prices_ended', accountId, model: operation.model, ended };
    }
    case 'revoke_key': {
      const revoked = await repositories.revokeKey({ keyId: operation.keyId, at, changeId: newId() });
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
    case 'release_person':
      return releasePerson(operation, services);
    case 'delete_account':
      return deleteAccount(operation, services);
    case 'suspend_account':
    case 'revive_account': {
      const status = operation.kind === 'suspend_account' ? 'suspended' : 'active';
      if (operation.reason !== undefined) checkedText(operation.reason, 'A reason', reasonLengthMax);
      await accountMeant(operation.accountId, repositories);
      await ledger.setAccountStatus(operation.accountId, status, at, newId());
      directory?.apply({ kind: 'account_status', accountId: operation.accountId, status });
      return { kind: 'status', accountId: operation.accountId, status };
    }
  }
}

const noLiveKey = (keyId: string): OperationError =>
  new OperationError(`There is no live key ${keyId}. List them with: tokenhouse keys list`, {
    cause: new StoreError('not_found', `there is no live key ${keyId}`),
  });

/** Applies the change in this process, where the feed does not bring it. */
async function followKey(keyId: string, { repositories, directory }: OperationServices): Promise<void> {
  if (directory === undefined) return;
  const [key] = await repositories.loadKeys({ ids: [keyId] });
  if (key !== undefined) directory.apply({ kind: 'key_changed', key });
}

/** A management key makes no requests, so of all restrictions on requests only the source address applies to it. */
function managementOf(given: Extract<Operation, { kind: 'create_key' }>): {
  readonly role: Role | null;
  readonly isOperator: boolean;
} {
  const { role, isOperator = false, models, limits = {}, budget, tags = [] } = given;
  if (role === undefined) {
    if (isOperator) throw new OperationError('Only a management key can be an operator: say its role too.');
    return { role: null, isOperator: false };
  }
  if (!roles.includes(role)) throw new OperationError(`A role is one of ${roles.join(', ')}.`);
  const isKept = Object.entries(limits).some(([name, value]) => name !== 'addresses' && value !== undefined);
  if (models !== undefined || budget !== undefined || isKept || tags.length > 0)
    throw new OperationError('A management key makes no requests: it has no models, limits, budget or tags.');
  return { role, isOperator };
}

/** Removes duplicates. */
function checkedTags(tags: readonly string[] = []): readonly string[] {
  const set = [...new Set(tags)];
  if (set.length > tagsMax || !set.every(isTag)) throw new OperationError(tagRule);
  return set;
}

const reasonLengthMax = 1000;

function expiryOf(
  { expiresAt, expiresAfterMs }: Extract<Operation, { kind: 'create_key' }>,
  now: number,
): number | null {
  return expiresAfterMs === undefined ? (expiresAt ?? null) : now + expiresAfterMs;
}

/** The same as in the configuration: 10¹⁵ microcents for a million tokens. */
const priceMax = 10n ** 15n;

function priceOf(given: Extract<Operation, { kind: 'set_price' }>, accountId: string, now: number): AccountPrice {
  const input = BigInt(given.input);
  const output = BigInt(given.output);
  const cacheRead = given.cacheRead === undefined ? input : BigInt(given.cacheRead);
  for (const price of [input, output, cacheRead])
    if (price < 0n || price > priceMax) throw new OperationError(`A price is 0 to ${priceMax} microcents.`);
  // A hold is taken at the input price, and a charge never exceeds its hold (reliability I2).
  if (cacheRead > input) throw new OperationError('Cached tokens may not cost more than uncached ones.');
  const { validFrom = now, validTo } = given;
  // What has been charged stays charged: rates apply from the start of future requests.
  if (validFrom < now) throw new OperationError('Rates cannot begin in the past.');
  if (validTo !== undefined && validTo <= validFrom) throw new OperationError('Rates must end after they begin.');
  return {
    accountId,
    modelId: checkedModel(given.model),
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

/** Drops undefined fields. */
function checkedChange(limits: LimitsChange): Readonly<Record<string, unknown>> {
  const changed = Object.entries(limits).filter(([, value]) => value !== undefined);
  checkedLimits(Object.fromEntries(changed.filter(([, value]) => value !== null)));
  return Object.fromEntries(changed);
}

function checkedTimeZone(name: string): string {
  const zone = timeZoneNamed(name);
  if (zone === undefined)
    throw new OperationError('There is no such time zone; write one of IANA, such as Europe/Berlin or UTC.');
  return zone;
}

const modelsMax = 1000;

/** Lower case, sorted, without duplicates. */
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
