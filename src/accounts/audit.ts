import type { AuditEntry } from '../store/repositories/audit.ts';
import type { AuditOutcome } from '../store/database.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Account, ApiKey } from '../store/repositories/queries.ts';
import { serviceItself } from './actor.ts';
import { readAccountLimits, readLimits } from './key-limits.ts';
import { accountMeant, OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';
import type { Operation, OperationAnswer } from './operation-kinds.ts';

/** What an operation changes, compared before and after it. */
type Subject = 'key' | 'account' | 'prices' | 'credit' | 'owner' | 'person';

const audited = {
  create_account: ['account.create', 'account'],
  edit_account: ['account.edit', 'account'],
  allow_account: ['account.models', 'account'],
  plan_account: ['account.plan', 'account'],
  limit_account: ['account.limits', 'account'],
  budget_account: ['account.budget', 'account'],
  limit_credit: ['account.credit_limit', 'account'],
  suspend_account: ['account.suspend', 'account'],
  revive_account: ['account.revive', 'account'],
  delete_account: ['account.delete', 'account'],
  create_key: ['key.create', 'key'],
  allow_key: ['key.models', 'key'],
  limit_key: ['key.limits', 'key'],
  edit_key: ['key.edit', 'key'],
  budget_key: ['key.budget', 'key'],
  rotate_key: ['key.rotate', 'key'],
  revoke_key: ['key.revoke', 'key'],
  set_price: ['price.set', 'prices'],
  remove_price: ['price.remove', 'prices'],
  move_credit: ['credit.move', 'credit'],
  refund_request: ['credit.refund_request', 'credit'],
  owner_link: ['owner.link', 'owner'],
  create_owner: ['owner.create', 'owner'],
  release_person: ['person.release', 'person'],
} as const satisfies Readonly<Record<Operation['kind'], readonly [action: string, subject: Subject]>>;

export const auditId = ({ id }: Pick<AuditEntry, 'id'>): string => `audit_${Buffer.from(id).toString('hex')}`;

/** undefined: not the id of an entry. */
export function readAuditId(text: string): Uint8Array | undefined {
  const hex = /^audit_([0-9a-f]{32})$/.exec(text)?.[1];
  return hex === undefined ? undefined : Uint8Array.from(Buffer.from(hex, 'hex'));
}

/** Reads what an entry keeps as JSON. */
export const readPrinted = (text: string | null | undefined): unknown =>
  text === undefined || text === null ? null : (JSON.parse(text) as unknown);

/** The names of all operations in the audit log. */
export const auditedActions: readonly string[] = Object.values(audited).map(([action]) => action);

/** An operation that is written down but not yet carried out. */
export interface BegunEntry {
  /** Writes the outcome. Never throws: an entry that stays `begun` says that the outcome is unknown. */
  complete(outcome: Exclude<AuditOutcome, 'begun'>, answer?: OperationAnswer): Promise<void>;
}

/** Without password hashes, which are worth guessing at, and invitees' addresses, which the invitation has until it ends. */
const withoutPrivateParts = (name: string, value: unknown): unknown =>
  name === 'passwordHash' || name === 'ownerEmail' ? undefined : value;

/**
 * Writes an operation down before any of it is done, so that no crash hides a change: its subject, its input, and the state
 * before. Neither holds a secret: an operation has none.
 */
export async function beginEntry(operation: Operation, services: OperationServices): Promise<BegunEntry> {
  const { repositories, newId, now, actor = serviceItself } = services;
  const [action, subject] = audited[operation.kind];
  const { requestId, address, ...who } = actor;
  const about = await aboutOf(operation, repositories);
  const id = newId();
  const common = { actor: who, action, requestId, address };
  await repositories.recordAudit({
    ...common,
    id,
    at: now(),
    accountId: about.accountId ?? null,
    target: targetOf(subject, operation, about),
    before: await factsOf(subject, operation, about, services),
    after: null,
    outcome: 'begun',
    input: JSON.stringify(operation, withoutPrivateParts),
  });
  return {
    complete: async (outcome, answer) => {
      try {
        const now_ = { ...about, ...idsOf(answer) };
        await repositories.recordAudit({
          ...common,
          id: newId(),
          at: now(),
          accountId: now_.accountId ?? null,
          target: targetOf(subject, operation, now_),
          before: null,
          after: outcome === 'done' ? await factsOf(subject, operation, now_, services, answer) : null,
          outcome,
          completes: id,
        });
      } catch {
        // The change itself is durable, or was not made: its answer must not be lost because of this.
      }
    },
  };
}

interface About {
  readonly accountId?: string | undefined;
  readonly keyId?: string | undefined;
  /** Known when it is done: an address, which is known before, could not be removed from an entry again. */
  readonly userId?: string | undefined;
}

async function aboutOf(operation: Operation, repositories: Repositories): Promise<About> {
  if (
    operation.kind === 'create_account' ||
    operation.kind === 'owner_link' ||
    operation.kind === 'create_owner' ||
    operation.kind === 'release_person'
  )
    return {};
  if ('keyId' in operation) {
    const { keyId } = operation;
    return { keyId, accountId: (await repositories.getKey({ keyId }))?.accountId };
  }
  try {
    return { accountId: await accountMeant(operation.accountId, repositories) };
  } catch (error) {
    if (error instanceof OperationError) return { accountId: operation.accountId };
    throw error;
  }
}

function idsOf(answer: OperationAnswer | undefined): About {
  if (answer?.kind === 'account') return { accountId: answer.accountId };
  if (answer?.kind === 'owner' || answer?.kind === 'released') return { userId: answer.userId };
  return answer?.kind === 'key' ? { accountId: answer.accountId, keyId: answer.keyId } : {};
}

function targetOf(subject: Subject, operation: Operation, { accountId, keyId, userId }: About): string | null {
  switch (subject) {
    case 'key':
      return keyId ?? null;
    case 'account':
      return accountId ?? null;
    case 'prices':
      return 'model' in operation ? operation.model : null;
    case 'credit':
      return operation.kind === 'refund_request' ? operation.requestId : (accountId ?? null);
    case 'owner':
    case 'person':
      return userId ?? null;
  }
}

async function factsOf(
  subject: Subject,
  operation: Operation,
  { accountId, keyId }: About,
  { repositories, now }: OperationServices,
  answer?: OperationAnswer,
): Promise<string | null> {
  switch (subject) {
    case 'key': {
      const key = keyId === undefined ? undefined : await repositories.getKey({ keyId });
      return key === undefined ? null : print({ ...keyFacts(key), budget: await budgetFacts(key.id, repositories) });
    }
    case 'account': {
      const account = accountId === undefined ? undefined : await repositories.getAccount({ accountId });
      if (account === undefined) return null;
      return print({ ...accountFacts(account), budget: await budgetFacts(account.id, repositories) });
    }
    case 'prices': {
      if (accountId === undefined || !('model' in operation)) return null;
      const rates = await repositories.listAccountPrices({ accountId, endingAfter: now() });
      const modelId = operation.model.toLowerCase();
      return print({ rates: rates.filter((rate) => rate.modelId === modelId) });
    }
    case 'credit': {
      const account = accountId === undefined ? undefined : await repositories.getAccount({ accountId });
      const balance = { balance_microcents: account?.balanceMicrocents ?? null };
      return print(answer?.kind === 'moved' ? { ...balance, moved: answer.microcents, again: answer.again } : balance);
    }
    case 'owner':
      return answer?.kind === 'owner' ? print({ user_id: answer.userId }) : null;
    case 'person': {
      if (answer?.kind !== 'released') return null;
      const { userId, hadTwoFactor, passkeys, sessions } = answer;
      return print({ user_id: userId, had_two_factor: hadTwoFactor, passkeys, sessions });
    }
  }
}

/** Exact: amounts are decimal text. */
const print = (facts: object): string =>
  JSON.stringify(facts, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value));

async function budgetFacts(subject: string, repositories: Repositories) {
  const budget = await repositories.getBudget({ subject });
  return budget === null ? null : { microcents: budget.amountMicrocents, per: budget.per };
}

const seconds = (ms: number | null): number | null => (ms === null ? null : Math.floor(ms / 1000));

const keyFacts = (key: ApiKey) => ({
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

const accountFacts = (account: Account) => ({
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
