import type { Kysely } from 'kysely';
import { leasedOfBalance } from '../repositories/budgets.ts';
import {
  budgetPeriods,
  balanceAt,
  memberSubject,
  modelSubject,
  periodsCharged,
  readBalanceId,
  readMemberSubject,
  type BudgetPeriod,
  type ChargedPeriods,
} from '../budget.ts';
import type { Database } from '../database.ts';
import type { Difference } from './difference.ts';
import { pagesByKey } from './pages.ts';

const pageRows = 2000;

interface BudgetBalance {
  readonly amount: bigint;
  readonly spentBefore: bigint;
  /** The part that is neither spent nor leased, plus the leased part. */
  readonly left: bigint;
  /** The sums of the usage rows that are charged to it, and of those in its period that are not. */
  charged: bigint;
  beside: bigint;
}

type Charge = Readonly<Record<'account_id' | 'key_id' | 'model_id', string>> &
  Readonly<Record<'started_at' | 'cost', bigint>> &
  Readonly<Record<'key_budget' | 'account_budget', ChargedPeriods | null>> & { readonly member_budget: string | null };

/**
 * What every budget has spent in every period, derived from the usage rows: `amount` − `spent_before` − what was charged to it =
 * `available` + what is leased, and what it counted as already spent is in older rows.
 */
export class BudgetTotals {
  readonly #balances: ReadonlyMap<string, BudgetBalance>;
  readonly #subjects: ReadonlySet<string>;
  /** By the keys of members who have or had a budget. */
  readonly #members: ReadonlyMap<string, string>;
  readonly #membersWithKeys: ReadonlySet<string>;
  readonly #unknown = new Map<string, { readonly accountId: string; cost: bigint }>();

  private constructor(balances: ReadonlyMap<string, BudgetBalance>, members: ReadonlyMap<string, string>) {
    this.#balances = balances;
    this.#members = members;
    this.#membersWithKeys = new Set(members.values());
    this.#subjects = new Set([...balances.keys()].map((id) => id.slice(0, id.indexOf(':'))));
  }

  static async read(db: Kysely<Database>): Promise<BudgetTotals> {
    const balances = new Map<string, BudgetBalance>();
    const pages = pagesByKey({
      first: '',
      size: pageRows,
      read: (after) =>
        db
          .selectFrom('budget_balance')
          .select(['id', 'amount', 'spent_before', 'available', leasedOfBalance()])
          .where('id', '>', after)
          .orderBy('id'),
      keyOf: ({ id }) => id,
    });
    for await (const rows of pages)
      for (const { id, amount, spent_before: spentBefore, available, leased } of rows)
        balances.set(id, { amount, spentBefore, left: available + leased, charged: 0n, beside: 0n });
    return new BudgetTotals(balances, await membersOf(db, balances.keys()));
  }

  /** Call once with every usage row. */
  add(row: Charge): void {
    this.#addToOwner(row, row.key_id, row.key_budget);
    this.#addToOwner(row, row.account_id, row.account_budget);
    const charged = row.member_budget === null ? undefined : readBalanceId(row.member_budget);
    const member = charged?.subject ?? this.#members.get(row.key_id);
    if (member !== undefined) this.#addTo(row, member, charged?.per ?? null);
  }

  #addToOwner(row: Charge, ownerId: string, charged: ChargedPeriods | null): void {
    const { ofAll, ofModel } = periodsCharged(charged);
    this.#addTo(row, ownerId, ofAll);
    this.#addTo(row, modelSubject(ownerId, row.model_id), ofModel);
  }

  #addTo({ account_id: accountId, started_at, cost }: Charge, subject: string, chargedPer: BudgetPeriod | null): void {
    if (cost === 0n || (chargedPer === null && !this.#subjects.has(subject))) return;
    for (const per of budgetPeriods) {
      const { id } = balanceAt(subject, per, Number(started_at));
      const totals = this.#balances.get(id);
      if (totals === undefined) {
        if (per === chargedPer) this.#unknown.set(id, { accountId, cost: (this.#unknown.get(id)?.cost ?? 0n) + cost });
      } else if (per === chargedPer) totals.charged += cost;
      else totals.beside += cost;
    }
  }

  #isTraceable(subject: string): boolean {
    return readMemberSubject(subject) === undefined || this.#membersWithKeys.has(subject);
  }

  *differences(): Generator<Difference> {
    for (const [id, { amount, spentBefore, left, charged, beside }] of this.#balances) {
      const expected = amount - spentBefore - charged;
      if (left !== expected) yield { accountId: null, what: `budget ${id}: left`, expected, found: left };
      // The keys of a deleted account lost their users: earlier spending on them can no longer be found.
      if (spentBefore > beside && this.#isTraceable(readBalanceId(id).subject))
        yield {
          accountId: null,
          what: `budget ${id}: spent before it was set`,
          expected: `at most ${beside}`,
          found: spentBefore,
        };
    }
    for (const [id, { accountId, cost }] of this.#unknown)
      yield {
        accountId,
        what: `budget ${id}`,
        expected: `exists, because ${cost} was charged to it`,
        found: 'missing',
      };
  }
}

/** The members with a balance, by the ids of their keys. */
async function membersOf(db: Kysely<Database>, balanceIds: Iterable<string>): Promise<ReadonlyMap<string, string>> {
  const subjects = new Set([...balanceIds].map((id) => readBalanceId(id).subject));
  const members = new Map<string, string>();
  for (const subject of subjects) {
    const member = readMemberSubject(subject);
    if (member === undefined) continue;
    const { accountId, userId } = member;
    const keys = await db
      .selectFrom('api_key')
      .where('account_id', '=', accountId)
      .where('user_id', '=', userId)
      .select('id')
      .execute();
    for (const { id } of keys) members.set(id, memberSubject(accountId, userId));
  }
  return members;
}
