import Type from 'typebox';

import { StoreError } from '../../store/store-error.ts';
import { madeKey, theKey } from '../audit-subjects.ts';
import { budgetSchema, checkedBudget, ofModel, setBudget } from '../budget.ts';
import { checkedChange, checkedModels, checkedName } from '../checks.ts';
import { displayOf, hashKey, issueKey, newKey } from '../key.ts';
import { keyLimitsSchema, limitsChangeSchema } from '../key-limits-schema.ts';
import { faultOfLimits, printLimits, readLimits } from '../key-limits.ts';
import type { KeyLimits } from '../key-limits.ts';
import { accountMeant, checkedText, OperationError } from '../operation.ts';
import { operation } from '../perform.ts';
import { duration, ofAccount, orNull, text, texts, time } from '../request-schema.ts';
import type { Input } from '../request-schema.ts';
import { roles } from '../role.ts';
import type { Role } from '../role.ts';
import { isTag, tagRule, tagsMax } from '../tags.ts';

/** Maximum time that the previous secret works after a rotation: seven days. */
export const overlapMsMax = 7 * 86_400_000;

const newKeySchema = Type.Object({
  ...ofAccount,
  name: text,
  /** Omitted: a legacy key without a user. */
  userId: Type.Optional(text),
  expiresAt: Type.Optional(time),
  /** Alternative to `expiresAt`. */
  expiresAfterMs: Type.Optional(duration),
  /** Omitted: all that the account may use. */
  models: Type.Optional(texts),
  /** Omitted: no limits. */
  limits: Type.Optional(keyLimitsSchema),
  /** Omitted: no budget. */
  budget: Type.Optional(budgetSchema),
  /** Labels applied to all of its requests. */
  tags: Type.Optional(texts),
  /** A management key with the rights of this role; omitted: an inference key. */
  role: Type.Optional(Type.Enum([...roles])),
  /** A management key of the operator. */
  isOperator: Type.Optional(Type.Boolean()),
  /** The session of the console that it ends with. */
  sessionId: Type.Optional(text),
});
type NewKey = Input<typeof newKeySchema>;

export const keyOperations = {
  create_key: operation({
    schema: newKeySchema,
    audit: { action: 'key.create', subject: madeKey },
    run: async (input, { repositories, secret, now, newId }) => {
      const at = now();
      const { name, userId, expiresAt, expiresAfterMs } = input;
      const accountId = await accountMeant(input.accountId, repositories);
      const issued = issueKey({
        accountId,
        userId: userId === undefined ? null : checkedText(userId, 'A user', 100),
        name: checkedName(name),
        secret,
        now: at,
        expiresAt: expiresAfterMs === undefined ? (expiresAt ?? null) : at + expiresAfterMs,
        models: checkedModels(input.models),
        limits: checkedLimits(input.limits),
        tags: checkedTags(input.tags),
        sessionId: input.sessionId ?? null,
        ...managementOf(input),
      });
      const budget = checkedBudget(input.budget);
      await repositories.createKey({ key: issued.row, budget, changeId: newId() });
      // `key` is displayed once and not stored.
      return { keyId: issued.row.id, accountId, name, key: issued.text };
    },
  }),

  /** Sets the models that a key may use; `models` omitted: all that its account may. */
  allow_key: operation({
    schema: Type.Object({ keyId: text, models: Type.Optional(texts) }),
    audit: { action: 'key.models', subject: theKey },
    run: async ({ keyId, models: named }, { repositories, now, newId }) => {
      const models = checkedModels(named);
      const key = await repositories.allowKey({ keyId, models, at: now(), changeId: newId() });
      if (key === undefined) throw noLiveKey(keyId);
      return { id: keyId, models };
    },
  }),

  /** Changes a key's restrictions; null removes one, omitted ones stay. */
  limit_key: operation({
    schema: Type.Object({ keyId: text, limits: limitsChangeSchema }),
    audit: { action: 'key.limits', subject: theKey },
    run: async ({ keyId, limits }, { repositories, now, newId }) => {
      const change = { keyId, limits: checkedChange(limits, faultOfLimits), at: now(), changeId: newId() };
      const key = await repositories.limitKey(change);
      if (key === undefined) throw noLiveKey(keyId);
      return { keyId, limits: readLimits(key.limits) };
    },
  }),

  /** Changes a key's details in one step; omitted ones stay. */
  edit_key: operation({
    schema: Type.Object({
      keyId: text,
      name: Type.Optional(text),
      /** null: never. */
      expiresAt: Type.Optional(orNull(time)),
      /** Alternative to `expiresAt`. */
      expiresAfterMs: Type.Optional(duration),
      /** null: all that its account may use. */
      models: Type.Optional(orNull(texts)),
      limits: Type.Optional(limitsChangeSchema),
      tags: Type.Optional(texts),
      /** Paused: it admits no request, and its running requests are cut. */
      disabled: Type.Optional(Type.Boolean()),
    }),
    audit: { action: 'key.edit', subject: theKey },
    run: async ({ keyId, name, expiresAfterMs, models, limits, tags, ...rest }, { repositories, now, newId }) => {
      const at = now();
      const key = await repositories.editKey({
        keyId,
        name: name === undefined ? undefined : checkedName(name),
        expiresAt: expiresAfterMs === undefined ? rest.expiresAt : at + expiresAfterMs,
        models: models === undefined ? undefined : checkedModels(models ?? undefined),
        limits: limits === undefined ? undefined : checkedChange(limits, faultOfLimits),
        tags: tags === undefined ? undefined : checkedTags(tags),
        disabled: rest.disabled,
        at,
        changeId: newId(),
      });
      if (key === undefined) throw noLiveKey(keyId);
      return { keyId, name: key.name, expiresAt: key.expiresAt, disabled: key.disabledAt !== null };
    },
  }),

  /** Sets, replaces or removes the budget of a key. */
  budget_key: operation({
    schema: Type.Object({ keyId: text, ...ofModel, budget: Type.Optional(budgetSchema) }),
    audit: { action: 'key.budget', subject: theKey },
    run: ({ keyId, ...input }, services) => setBudget('key', keyId, input, services),
  }),

  /** Gives a key another secret; the current one keeps working for this long. */
  rotate_key: operation({
    schema: Type.Object({ keyId: text, overlapMs: Type.Integer({ minimum: 0 }) }),
    audit: { action: 'key.rotate', subject: theKey },
    run: async ({ keyId, overlapMs }, { repositories, secret, now, newId }) => {
      const at = now();
      if (!Number.isSafeInteger(overlapMs) || overlapMs < 0 || overlapMs > overlapMsMax)
        throw new OperationError('The earlier secret can stay valid for 0 seconds to 7 days.');
      const made = newKey();
      const key = await repositories.rotateKey({
        keyId,
        hash: hashKey(made, secret),
        pepperId: secret.id,
        display: displayOf(made),
        previousEndsAt: overlapMs === 0 ? null : at + overlapMs,
        at,
        changeId: newId(),
      });
      if (key === undefined) throw noLiveKey(keyId);
      const { accountId, name, previousEndsAt } = key;
      // The previous secret's end is by the clock of the database; null: it has ended.
      return { keyId, accountId, name, key: made, previousEndsAt };
    },
  }),

  revoke_key: operation({
    schema: Type.Object({ keyId: text }),
    audit: { action: 'key.revoke', subject: theKey },
    run: async ({ keyId }, { repositories, now, newId }) => {
      const key = await repositories.revokeKey({ keyId, at: now(), changeId: newId() });
      if (key === undefined) throw new OperationError(`There is no key ${keyId}. List them with: tokenhouse keys list`);
      return { keyId, accountId: key.accountId, name: key.name };
    },
  }),
};

const noLiveKey = (keyId: string): OperationError =>
  new OperationError(`There is no live key ${keyId}. List them with: tokenhouse keys list`, {
    cause: new StoreError('not_found', `there is no live key ${keyId}`),
  });

/** A management key makes no requests, so of all request restrictions only the source address applies to it. */
function managementOf(input: NewKey): { readonly role: Role | null; readonly isOperator: boolean } {
  const { role, isOperator = false, models, limits = {}, budget, tags = [] } = input;
  if (role === undefined) {
    if (isOperator) throw new OperationError('Only a management key can be an operator: give its role too.');
    return { role: null, isOperator: false };
  }
  if (!roles.includes(role)) throw new OperationError(`A role must be one of ${roles.join(', ')}.`);
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

function checkedLimits(limits: KeyLimits = {}): string | null {
  const fault = faultOfLimits(limits);
  if (fault !== undefined) throw new OperationError(fault);
  return printLimits(limits);
}
