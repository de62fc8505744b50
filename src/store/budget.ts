/**
 * Budgets of keys, members and accounts, and their balances (money.md, "Budgets"). A budget is an amount for each period; a balance is what
 * one budget has for one period. Holds are taken from it in the same way as from an account's credit, so wherever the ledger refers to a
 * balance, an account's id stands for its credit.
 */

export const budgetPeriods = ['day', 'week', 'month', 'total'] as const;
export type BudgetPeriod = (typeof budgetPeriods)[number];

export interface Budget {
  readonly amountMicrocents: bigint;
  readonly per: BudgetPeriod;
}

/** The type of a budget's owner. */
export type BudgetOwner = 'key' | 'member' | 'account';

/** The id of a person in one account; their spending in other accounts does not count. */
export const memberSubject = (accountId: string, userId: string): string => `${accountId}/${userId}`;

/** undefined: the subject is not a member. */
export function readMemberSubject(
  subject: string,
): { readonly accountId: string; readonly userId: string } | undefined {
  const slash = subject.indexOf('/');
  return slash === -1 ? undefined : { accountId: subject.slice(0, slash), userId: subject.slice(slash + 1) };
}

/** What a key or an account may spend on one model; its id is in lower case, because ids match case-insensitively. */
export interface ModelSubject {
  readonly ownerId: string;
  readonly modelId: string;
}

/** Escaped, so that ids of models are not taken for the parts of a balance's id. */
export const modelSubject = (ownerId: string, modelId: string): string =>
  `${ownerId}@${encodeURIComponent(modelId.toLowerCase())}`;

/** undefined: the subject is not one model's part of a key or an account. */
export function readModelSubject(subject: string): ModelSubject | undefined {
  const at = subject.indexOf('@');
  return at === -1 ? undefined : { ownerId: subject.slice(0, at), modelId: decodeURIComponent(subject.slice(at + 1)) };
}

/**
 * The budgets of one key or account that a request is charged to: the period of the budget for all models, and after an `@` that of the
 * budget for its own model.
 */
export type ChargedPeriods = BudgetPeriod | `${BudgetPeriod | ''}@${BudgetPeriod}`;

export const chargedPeriods = (
  ofAll: BudgetPeriod | undefined,
  ofModel: BudgetPeriod | undefined,
): ChargedPeriods | null => (ofModel === undefined ? (ofAll ?? null) : `${ofAll ?? ''}@${ofModel}`);

/** All values that name a budget for all models, or for the request's own, per this period. */
export const chargedPer = (per: BudgetPeriod, of: 'all' | 'model'): readonly ChargedPeriods[] =>
  of === 'model'
    ? (['', ...budgetPeriods] as const).map((ofAll) => `${ofAll}@${per}` as const)
    : [per, ...budgetPeriods.map((ofModel) => `${per}@${ofModel}` as const)];

/** The periods of `ChargedPeriods`; null: no such budget. */
export function periodsCharged(charged: ChargedPeriods | null): {
  readonly ofAll: BudgetPeriod | null;
  readonly ofModel: BudgetPeriod | null;
} {
  const [ofAll = '', ofModel = ''] = charged?.split('@') ?? [];
  return { ofAll: periodNamed(ofAll), ofModel: periodNamed(ofModel) };
}

const periodNamed = (name: string): BudgetPeriod | null => budgetPeriods.find((per) => per === name) ?? null;

/** The balances of one key or account that a request is charged to. */
export function balancesOfOwner(
  { ownerId, modelId }: ModelSubject,
  charged: ChargedPeriods | null,
  at: number,
): readonly Balance[] {
  if (charged === null) return [];
  const { ofAll, ofModel } = periodsCharged(charged);
  return [
    ...(ofAll === null ? [] : [balanceAt(ownerId, ofAll, at)]),
    ...(ofModel === null ? [] : [balanceAt(modelSubject(ownerId, modelId), ofModel, at)]),
  ];
}

export interface Balance {
  readonly id: string;
  /** The id of the key or account, or the result of `memberSubject` or `modelSubject`. */
  readonly subject: string;
  readonly per: BudgetPeriod;
  /** Milliseconds since 1970. */
  readonly startsAt: number;
  /** Exclusive; null: never. */
  readonly endsAt: number | null;
}

const dayMs = 86_400_000;
/** 1970-01-05. */
const firstMondayMs = 4 * dayMs;

/** The period that contains a time: days, weeks from Monday and calendar months, all in UTC. */
export function periodOf(per: BudgetPeriod, at: number): Pick<Balance, 'startsAt' | 'endsAt'> {
  switch (per) {
    case 'day':
      return startingAt(Math.floor(at / dayMs) * dayMs, dayMs);
    case 'week':
      return startingAt(Math.floor((at - firstMondayMs) / (7 * dayMs)) * 7 * dayMs + firstMondayMs, 7 * dayMs);
    case 'month': {
      const day = new Date(at);
      const [year, month] = [day.getUTCFullYear(), day.getUTCMonth()];
      return { startsAt: Date.UTC(year, month), endsAt: Date.UTC(year, month + 1) };
    }
    case 'total':
      return { startsAt: 0, endsAt: null };
  }
}

const startingAt = (startsAt: number, lengthMs: number) => ({ startsAt, endsAt: startsAt + lengthMs });

/** The balance that a request is held from and charged to: that of the period in which it started, however long it runs. */
export function balanceAt(subject: string, per: BudgetPeriod, at: number): Balance {
  const period = periodOf(per, at);
  const day = period.endsAt === null ? '' : `:${new Date(period.startsAt).toISOString().slice(0, 10)}`;
  return { id: `${subject}:${per}${day}`, subject, per, ...period };
}

/** Whether it is a budget's balance; ids of accounts have no colon. */
export const isOfBudget = (balanceId: string): boolean => balanceId.includes(':');

/** Parses the id of a budget's balance. */
export function readBalanceId(balanceId: string): Balance {
  const balance = balanceNamed(balanceId);
  if (balance === undefined) throw new Error(`${balanceId} names no balance of a budget`);
  return balance;
}

/** undefined: it is not the id of a budget's balance, as `balanceAt` writes it. */
export function balanceNamed(text: string): Balance | undefined {
  const [subject = '', name = '', day = '1970-01-01'] = text.split(':');
  const [per, at] = [periodNamed(name), Date.parse(day)];
  const balance = per === null || Number.isNaN(at) ? undefined : balanceAt(subject, per, at);
  return balance?.id === text ? balance : undefined;
}
