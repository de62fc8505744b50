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

export interface Balance {
  readonly id: string;
  /** The id of the key or account, or the result of `memberSubject`. */
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
  const [subject = '', per, day] = balanceId.split(':');
  return balanceAt(subject, per as BudgetPeriod, day === undefined ? 0 : Date.parse(day));
}
