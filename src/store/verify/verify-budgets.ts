import type { Kysely, Selectable } from 'kysely';
import { leasedOfBalance } from '../repositories/budgets.ts';
import {
  budgetPeriods,
  balanceAt,
  balanceNamed,
  chargedPeriods,
  memberSubject,
  modelSubject,
  periodsCharged,
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
  readonly #misread: readonly Difference[];

  private constructor(
    balances: ReadonlyMap<string, BudgetBalance>,
    members: ReadonlyMap<string, string>,
    misread: readonly Difference[],
  ) {
    this.#balances = balances;
    this.#members = members;
    this.#misread = misread;
    this.#membersWithKeys = new Set(members.values());
    this.#subjects = new Set([...balances.keys()].map(subjectOf));
  }

  static async read(db: Kysely<Database>): Promise<BudgetTotals> {
    const balances = new Map<string, BudgetBalance>();
    const misread: Difference[] = [];
    const budgets = new Map((await db.selectFrom('budget').selectAll().execute()).map((one) => [one.subject, one]));
    const pages = pagesByKey({
      first: '',
      size: pageRows,
      read: (after) =>
        db.selectFrom('budget_balance').selectAll().select(leasedOfBalance()).where('id', '>', after).orderBy('id'),
      keyOf: ({ id }) => id,
    });
    for await (const rows of pages)
      for (const row of rows) {
        misread.push(...faultsOf(row, budgets.get(row.subject)));
        const { id, amount, spent_before: spentBefore, available, leased } = row;
        balances.set(id, { amount, spentBefore, left: available + leased, charged: 0n, beside: 0n });
      }
    return new BudgetTotals(balances, await membersOf(db, balances.keys()), misread);
  }

  /** Call once with every usage row. */
  add(row: Charge): void {
    this.#addToOwner(row, row.key_id, row.key_budget);
    this.#addToOwner(row, row.account_id, row.account_budget);
    const charged = row.member_budget === null ? undefined : balanceNamed(row.member_budget);
    if (row.member_budget !== null && charged === undefined)
      this.#addUnknown(row.member_budget, { accountId: row.account_id, cost: row.cost });
    const member = charged?.subject ?? this.#members.get(row.key_id);
    if (member !== undefined) this.#addTo(row, member, charged?.per ?? null);
  }

  #addToOwner(row: Charge, ownerId: string, charged: ChargedPeriods | null): void {
    const { ofAll, ofModel } = periodsCharged(charged);
    if (chargedPeriods(ofAll ?? undefined, ofModel ?? undefined) !== charged)
      this.#addUnknown(`${ownerId}:${charged}`, { accountId: row.account_id, cost: row.cost });
    this.#addTo(row, ownerId, ofAll);
    this.#addTo(row, modelSubject(ownerId, row.model_id), ofModel);
  }

  #addTo({ account_id: accountId, started_at, cost }: Charge, subject: string, chargedPer: BudgetPeriod | null): void {
    if (cost === 0n || (chargedPer === null && !this.#subjects.has(subject))) return;
    for (const per of budgetPeriods) {
      const { id } = balanceAt(subject, per, Number(started_at));
      const totals = this.#balances.get(id);
      if (totals === undefined) {
        if (per === chargedPer) this.#addUnknown(id, { accountId, cost });
      } else if (per === chargedPer) totals.charged += cost;
      else totals.beside += cost;
    }
  }

  #addUnknown(id: string, { accountId, cost }: { readonly accountId: string; readonly cost: bigint }): void {
    this.#unknown.set(id, { accountId, cost: (this.#unknown.get(id)?.cost ?? 0n) + cost });
  }

  #isTraceable(balanceId: string): boolean {
    const subject = subjectOf(balanceId);
    return readMemberSubject(subject) === undefined || this.#membersWithKeys.has(subject);
  }

  *differences(): Generator<Difference> {
    yield* this.#misread;
    for (const [id, { amount, spentBefore, left, charged, beside }] of this.#balances) {
      const expected = amount - spentBefore - charged;
      if (left !== expected) yield { accountId: null, what: `budget ${id}: left`, expected, found: left };
      // The keys of a deleted account lost their users: earlier spending on them can no longer be found.
      if (spentBefore > beside && this.#isTraceable(id))
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

const subjectOf = (balanceId: string): string => balanceId.slice(0, Math.max(0, balanceId.indexOf(':')));

/** A balance is what its id says, and has the amount of its budget if that was not changed later. */
function* faultsOf(
  row: Selectable<Database['budget_balance']>,
  budget: Selectable<Database['budget']> | undefined,
): Generator<Difference> {
  const what = `budget ${row.id}`;
  const named = balanceNamed(row.id);
  const found = [row.subject, row.per, row.starts_at, row.ends_at].join(' ');
  const expected =
    named === undefined ? 'the id of a balance' : [named.subject, named.per, named.startsAt, named.endsAt].join(' ');
  if (found !== expected) yield { accountId: null, what, expected, found };
  if (budget?.per !== row.per || (row.ends_at !== null && row.ends_at <= budget.set_at)) return;
  if (budget.amount !== row.amount)
    yield { accountId: null, what: `${what}: amount`, expected: budget.amount, found: row.amount };
}

/** The members with a balance, by the ids of their keys. */
async function membersOf(db: Kysely<Database>, balanceIds: Iterable<string>): Promise<ReadonlyMap<string, string>> {
  const subjects = new Set([...balanceIds].map(subjectOf));
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
