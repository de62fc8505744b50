/** The subjects that operations change, for their audit log entries. */
import { memberSubject } from '../store/budget.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Account } from '../store/repositories/accounts.ts';
import type { ApiKey } from '../store/repositories/keys.ts';
import type { AuditSubject, Subject } from './audit.ts';
import { readAccountLimits, readLimits } from './key-limits.ts';
import { accountMeant, OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';

interface OfAccount {
  readonly accountId?: string | undefined;
}

const nothing: Subject = { accountId: null, target: null };

/** The time since which request details are kept. */
export const theRetention: AuditSubject<unknown, unknown> = {
  before: () => Promise.resolve({ accountId: null, target: 'usage' }),
  facts: async (_subject, { repositories }) => {
    const { keptSince } = await repositories.retentionOf({});
    return { kept_since: new Date(keptSince).toISOString() };
  },
};

/** The key that signs days of usage. */
export const theSigningKey: AuditSubject<unknown, unknown> = {
  before: () => Promise.resolve({ accountId: null, target: 'signing_key' }),
  facts: async (_subject, { repositories }) => ({ id: (await repositories.listSigningKeys({})).at(-1)?.id ?? null }),
};

/** The key named in the request. */
export const theKey: AuditSubject<{ readonly keyId: string }, unknown> = {
  before: async ({ keyId }, { repositories }) => ({
    accountId: (await repositories.getKey({ keyId }))?.accountId ?? null,
    keyId,
    target: keyId,
  }),
  facts: keyFacts,
};

/** A newly created key. */
export const madeKey: AuditSubject<OfAccount, { readonly accountId: string; readonly keyId: string }> = {
  before: async (input, services) => ({ accountId: await accountOf(input, services), target: null }),
  after: (_before, { accountId, keyId }) => ({ accountId, keyId, target: keyId }),
  facts: keyFacts,
};

/** The account named in the request, or the only one. */
export const theAccount: AuditSubject<OfAccount, unknown> = {
  before: async (input, services) => {
    const accountId = await accountOf(input, services);
    return { accountId, target: accountId };
  },
  facts: accountFacts,
};

/** A newly created account. */
export const madeAccount: AuditSubject<unknown, { readonly accountId: string }> = {
  before: () => Promise.resolve(nothing),
  after: (_before, { accountId }) => ({ accountId, target: accountId }),
  facts: accountFacts,
};

/** A member of the account named in the request. */
export const theMember: AuditSubject<OfAccount & { readonly userId: string }, unknown> = {
  before: async (input, services) => {
    const { userId } = input;
    return { accountId: await accountOf(input, services), userId, target: userId };
  },
  facts: memberFacts,
};

/** The rates of an account for a model. */
export const theRates: AuditSubject<OfAccount & { readonly model: string }, unknown> = {
  before: async (input, services) => ({ accountId: await accountOf(input, services), target: input.model }),
  facts: async ({ accountId, target }, { repositories, now }) => {
    if (accountId === null || target === null) return null;
    const rates = await repositories.listAccountPrices({ accountId, endingAfter: now() });
    const modelId = target.toLowerCase();
    return { rates: rates.filter((rate) => rate.modelId === modelId) };
  },
};

interface Movement {
  readonly microcents: string;
  readonly again: boolean;
}

/** The credit of an account. */
export const theCredit: AuditSubject<OfAccount, Movement> = { before: theAccount.before, facts: creditFacts };

/** The credit of the account that receives the refund of a request's cost. */
export const theRequest: AuditSubject<OfAccount & { readonly requestId: string }, Movement> = {
  before: async (input, services) => ({ accountId: await accountOf(input, services), target: input.requestId }),
  facts: creditFacts,
};

/** A server that operators add to a source of backends. */
export const theAddedBackend: AuditSubject<
  { readonly model: string; readonly source: string; readonly url: string },
  unknown
> = {
  before: ({ model, source, url }) =>
    Promise.resolve({ accountId: null, target: JSON.stringify([model.toLowerCase(), source, url]) }),
  facts: async ({ target }, { repositories }) => {
    const [model = '', source = '', url = ''] = JSON.parse(target ?? '[]') as string[];
    const added = await repositories.listAddedBackends({ model, source });
    return added.find((each) => each.url === url) ?? null;
  },
};

/** The server itself. */
export const theServer: AuditSubject<unknown, unknown> = {
  before: () => Promise.resolve(nothing),
  facts: () => Promise.resolve(null),
};

/**
 * A user, known by id after the operation: their email address, which is known before, could not be removed from an entry again. `facts`
 * selects from the answer what the entry records.
 */
export const theUser = <Answer extends { readonly userId: string }>(
  facts: (answer: Answer) => object,
): AuditSubject<unknown, Answer> => ({
  before: () => Promise.resolve(nothing),
  after: (_before, { userId }) => ({ accountId: null, target: userId }),
  facts: (_subject, _services, answer) => Promise.resolve(answer === undefined ? null : facts(answer)),
});

/** An id that does not match an account is recorded as given. */
async function accountOf({ accountId }: OfAccount, { repositories }: OperationServices): Promise<string | null> {
  try {
    return await accountMeant(accountId, repositories);
  } catch (error) {
    if (error instanceof OperationError) return accountId ?? null;
    throw error;
  }
}

async function keyFacts({ keyId }: Subject, { repositories }: OperationServices): Promise<object | null> {
  const key = keyId === undefined ? undefined : await repositories.getKey({ keyId });
  return key === undefined ? null : { ...shownKey(key), ...(await budgetsOf(key.id, repositories)) };
}

async function memberFacts(
  { accountId, userId }: Subject,
  { repositories }: OperationServices,
): Promise<object | null> {
  if (accountId === null || userId === undefined) return null;
  const member = await repositories.getMember({ accountId, userId });
  if (member === undefined) return null;
  return { role: member.role, budget: await budgetOf(memberSubject(accountId, userId), repositories) };
}

async function accountFacts({ accountId }: Subject, { repositories }: OperationServices): Promise<object | null> {
  const account = accountId === null ? undefined : await repositories.getAccount({ accountId });
  return account === undefined ? null : { ...shownAccount(account), ...(await budgetsOf(account.id, repositories)) };
}

async function creditFacts(
  { accountId }: Subject,
  { repositories }: OperationServices,
  answer?: Movement,
): Promise<object> {
  const account = accountId === null ? undefined : await repositories.getAccount({ accountId });
  const balance = { balance_microcents: account?.balanceMicrocents ?? null };
  return answer === undefined ? balance : { ...balance, moved: answer.microcents, again: answer.again };
}

/** For all models, and by model. */
async function budgetsOf(ownerId: string, repositories: Repositories) {
  const ofModels = await repositories.modelBudgetsOf({ ownerIds: [ownerId], at: 0 });
  const byModel = ofModels.map(({ modelId, amountMicrocents, per }) => [
    modelId,
    { microcents: amountMicrocents, per },
  ]);
  const budget = await budgetOf(ownerId, repositories);
  return { budget, ...(byModel.length === 0 ? {} : { budgets_by_model: Object.fromEntries(byModel) as object }) };
}

async function budgetOf(subject: string, repositories: Repositories) {
  const budget = await repositories.getBudget({ subject });
  return budget === null ? null : { microcents: budget.amountMicrocents, per: budget.per };
}

const seconds = (ms: number | null): number | null => (ms === null ? null : Math.floor(ms / 1000));

const shownKey = (key: ApiKey) => ({
  name: key.name,
  secret: key.display,
  status: key.status,
  user_id: key.userId,
  role: key.role,
  is_operator: key.isOperator,
  models: key.models,
  limits: readLimits(key.limits),
  tags: key.tags,
  disabled_at: seconds(key.disabledAt),
  expires_at: seconds(key.expiresAt),
  previous_secret_ends_at: seconds(key.previousEndsAt),
});

const shownAccount = (account: Account) => ({
  name: account.name,
  status: account.status,
  models: account.models,
  plan: account.plan,
  limits: readAccountLimits(account.limits),
  credit_limit_microcents: account.creditLimitMicrocents,
  billing: account.billing,
  time_zone: account.timeZone,
  deleted_at: seconds(account.deletedAt),
});
