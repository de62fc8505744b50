/** Whatever of old usage is removed, and however far the removal got: every answer stays as it was. On any dialect. */
import assert from 'node:assert/strict';
import type { Kysely } from 'kysely';
import { bucketBounds } from '../../src/platform/calendar/time-zone.ts';
import { balanceAt, budgetPeriods, memberSubject, readBalanceId, type BudgetPeriod } from '../../src/store/budget.ts';
import type { Database } from '../../src/store/database.ts';
import { systemAccounts, type UsageRow } from '../../src/store/ledger.ts';
import { readLedgerSpan } from '../../src/store/reports/ledger-span.ts';
import { reportRefunds, reportUsage, spendOfKeys, type ReportDimension } from '../../src/store/reports/reports.ts';
import { recomputeUsageDays, recomputeUsageHours } from '../../src/store/reports/roll-ups.ts';
import { editAccount } from '../../src/store/repositories/accounts.ts';
import { budgetsOf, spentBesideBudget } from '../../src/store/repositories/budgets.ts';
import { creditSummary, listLedger } from '../../src/store/repositories/credit.ts';
import { cursorOf, listGenerations } from '../../src/store/repositories/generations.ts';
import { lastUseOfKeys } from '../../src/store/repositories/key-last-use.ts';
import { findUsage, listUsage } from '../../src/store/repositories/usage-rows.ts';
import { sumUsage } from '../../src/store/repositories/usage-totals.ts';
import { removeUsage, type RemovalCursor } from '../../src/store/retention/removal.ts';
import { keepUsageSince, planRetention } from '../../src/store/retention/retention.ts';
import { rowsOn } from '../../src/store/schema/codec.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';
import { uuidText } from '../../src/platform/ids/uuid.ts';
import { uuid } from '../store/fixture.ts';
import { insertUsage, randomOf, randomRow } from './ledger-of-rows.ts';
import { keys, users } from './sums.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** Over the end of a month, and a change of clocks. */
const span = { from: Date.UTC(2026, 2, 12), to: Date.UTC(2026, 3, 12) };
const now = Date.UTC(2026, 5, 1);
const accounts = ['acct_a', 'acct_b'] as const;
const zones = ['UTC', 'Europe/Berlin', 'Asia/Kolkata', 'Asia/Kathmandu', 'Australia/Lord_Howe'];
const dimensions: readonly ReportDimension[] = ['model', 'key', 'user', 'tag'];

type Random = () => number;
const picker =
  (random: Random) =>
  <Value>(list: readonly Value[]): Value =>
    list[Math.floor(random() * list.length)]!;

export interface OldUsage {
  readonly accountIds: readonly string[];
  readonly from: number;
  readonly to: number;
  /** Until when all statements are issued. */
  readonly closedUntil: number;
  readonly count: number;
  /** Of requests, per kind of budget. */
  readonly budgetShare?: number;
}

/** Rows, some of them charged to budgets, whose balances say so; movements; sums; and all statements issued. */
export async function makeUsage(
  db: Kysely<Database>,
  random: Random,
  { accountIds, from, to, closedUntil, count, budgetShare = 0.3 }: OldUsage,
): Promise<readonly UsageRow[]> {
  const pick = picker(random);
  const rows = Array.from({ length: count }, () => {
    const accountId = pick(accountIds);
    const row = randomRow(random, { accountId, from, to }, keys);
    const period = (): BudgetPeriod | null => (random() < budgetShare ? pick(budgetPeriods) : null);
    const userId = accountId === 'acct_a' ? users[row.keyId] : null;
    const isOfMember = userId !== null && userId !== undefined && random() < budgetShare;
    return {
      ...row,
      keyBudget: period(),
      accountBudget: period(),
      memberBudget: isOfMember
        ? balanceAt(memberSubject(accountId, userId), pick(budgetPeriods), row.startedAt).id
        : null,
    };
  });
  await insertUsage(db, rows);
  const charged = new Map<string, bigint>();
  for (const { keyId, accountId, keyBudget, accountBudget, memberBudget, startedAt, costMicrocents } of rows)
    for (const id of [
      ...(keyBudget === null ? [] : [balanceAt(keyId, keyBudget, startedAt).id]),
      ...(accountBudget === null ? [] : [balanceAt(accountId, accountBudget, startedAt).id]),
      ...(memberBudget === null ? [] : [memberBudget]),
    ])
      charged.set(id, (charged.get(id) ?? 0n) + costMicrocents);
  const amount = 10n ** 15n;
  for (const [id, cost] of charged) {
    const { subject, per, startsAt, endsAt } = readBalanceId(id);
    await db
      .insertInto('budget_balance')
      .values({
        id,
        subject,
        per,
        starts_at: startsAt,
        ends_at: endsAt,
        amount,
        spent_before: 0n,
        available: amount - cost,
      })
      .execute();
  }
  for (const accountId of accountIds) {
    const closed = { account_id: accountId, at: closedUntil };
    await db.insertInto('closed_until').values(closed).execute();
    for (let index = 0; index < 12; index++) {
      const at = from + Math.floor(random() * (to - from));
      await move(db, { accountId, microcents: BigInt(1 + Math.floor(random() * 1e9)), at });
    }
  }
  // Some of them long after the request.
  for (let index = 0; index < 40; index++) {
    const row = pick(rows);
    if (row.costMicrocents === 0n) continue;
    const key = `refund:${Buffer.from(row.requestId).toString('hex')}`;
    const at = row.endedAt + Math.floor(random() * 30 * dayMs);
    await move(db, { accountId: row.accountId, microcents: row.costMicrocents / 2n + 1n, at, key });
  }
  await recomputeUsageHours(db, { now: to + hourMs });
  await addDays(db);
  return rows.sort((one, other) => one.endedAt - other.endedAt);
}

async function addDays(db: Kysely<Database>): Promise<void> {
  while ((await recomputeUsageDays(db)).isMore);
}

/** A grant, or with a key a refund; once. */
async function move(
  db: Kysely<Database>,
  {
    accountId,
    microcents,
    at,
    key,
  }: { readonly accountId: string; readonly microcents: bigint; readonly at: number; readonly key?: string },
): Promise<void> {
  const from = key === undefined ? systemAccounts.promo : systemAccounts.revenue;
  await db.transaction().execute(async (transaction) => {
    const { numInsertedOrUpdatedRows } = await transaction
      .insertInto('transfer')
      .values({
        id: uuid(),
        debit_account: from,
        credit_account: accountId,
        amount: microcents,
        kind: key === undefined ? 'grant' : 'refund',
        idempotency_key: key ?? crypto.randomUUID(),
        reference: null,
        by: 'test',
        at,
      })
      .onConflict((conflict) => conflict.doNothing())
      .executeTakeFirst();
    if (numInsertedOrUpdatedRows !== 1n) return;
    for (const [id, sign] of [
      [from, -1n],
      [accountId, 1n],
    ] as const)
      await transaction
        .updateTable('account')
        .set((is) => ({ available: is('available', '+', sign * microcents) }))
        .where('id', '=', id)
        .execute();
  });
}

type Question = (db: Kysely<Database>) => Promise<unknown>;

/** What pages and the API ask for, with spans and buckets of full hours, and of days of any zone. */
function questionsOf(random: Random, count: number): readonly Question[] {
  const pick = picker(random);
  const someTime = (): number => span.from - dayMs + Math.floor(random() * (span.to - span.from + 2 * dayMs));
  const fullHour = (): number => Math.floor(someTime() / hourMs) * hourMs;
  const questions: Question[] = [];
  const at = someTime();
  for (const accountId of accounts) {
    questions.push(
      (db) => creditSummary(db, { accountId, now }),
      (db) => lastUseOfKeys(db, { accountId, keyIds: keys }),
      (db) => db.selectFrom('account').select('available').where('id', '=', accountId).executeTakeFirst(),
      ...[undefined, 'usage' as const, 'refund' as const, 'grant' as const].map(
        (kind): Question =>
          (db) =>
            wholeLedger(db, accountId, kind),
      ),
      (db) => readLedgerSpan(rowsOn(db), { accountId, from: span.to, to: now }),
      (db) => budgetsOf(db, { subjects: [accountId, ...keys, memberSubject(accountId, 'ann')], at }),
    );
  }
  for (let index = 0; index < count; index++) {
    const accountId = pick(accounts);
    const timeZone = pick(zones);
    const by = dimensions.filter(() => random() < 0.4);
    const filter = {
      accountId,
      ...(random() < 0.2 ? { modelId: 'glm' } : {}),
      ...(random() < 0.2 ? { keyId: 'key_1' } : {}),
      ...(random() < 0.2 ? { userId: 'ann' } : {}),
      ...(random() < 0.2 ? { ownerId: 'bob' } : {}),
      ...(random() < 0.3 ? { tag: 'red' } : {}),
    };
    const [from, to] = [fullHour(), fullHour()].sort((one, other) => one - other) as [number, number];
    const days = bucketBounds(
      timeZone,
      '1d',
      { from: bucketBounds(timeZone, '1d', { from, to: from + 2 * dayMs }, 9)[1]!, to: from + 40 * dayMs },
      30,
    );
    const hours = bucketBounds('UTC', '1h', { from, to: from + 4 * dayMs }, 96);
    const bounds = pick([[from, to + hourMs], days, hours]);
    const [of, subject] = pick([
      ['key', pick(keys)],
      ['account', accountId],
      ['member', memberSubject('acct_a', 'ann')],
    ] as const);
    const request = { of, subject, per: pick(budgetPeriods), at: someTime() };
    const whose = random() < 0.5 ? { accountId } : {};
    const groups = pick(['model', 'key', 'account', 'day', undefined] as const);
    const apart = pick(['tag', 'tier', 'ending'] as const);
    questions.push(
      (db) => reportUsage(db, { ...filter, timeZone, bounds, by }),
      (db) => reportRefunds(db, { ...filter, timeZone, bounds, by }),
      (db) => spentBesideBudget(db, request),
      (db) => spendOfKeys(db, { accountId, since: [0, from], to: to + hourMs }),
      (db) =>
        sumUsage(db, {
          from,
          to,
          ...(groups === undefined ? {} : { by: [groups] }),
          ...whose,
        }),
      (db) => sumUsage(db, { from, to, accountId, by: [apart] }),
    );
  }
  return questions;
}

/** All pages of an account's ledger, of a few entries each. */
async function wholeLedger(db: Kysely<Database>, accountId: string, kind?: 'usage' | 'refund' | 'grant') {
  const limit = 40;
  const entries = [];
  for (let after: Parameters<typeof listLedger>[1]['after']; ;) {
    const page = await listLedger(db, {
      accountId,
      limit,
      now,
      ...(after === undefined ? {} : { after }),
      ...(kind === undefined ? {} : { kind }),
    });
    assert.ok(page);
    entries.push(...page);
    const last = page.at(-1);
    if (last === undefined || page.length < limit) return entries;
    after = last.kind === 'usage' ? { usageFrom: last.from } : { transferId: last.id };
  }
}

const answersTo = async (db: Kysely<Database>, questions: readonly Question[]): Promise<readonly unknown[]> => {
  const answers = [];
  for (const question of questions) answers.push(await question(db));
  return answers;
};

export async function compareAroundRemoval(db: Kysely<Database>, seed: number, questionCount: number): Promise<void> {
  const random = randomOf(seed);
  const pick = picker(random);
  const rows = await makeUsage(db, random, { accountIds: accounts, ...span, closedUntil: now, count: 2_000 });
  const accountOf = async (): Promise<void> => {
    await editAccount(rowsOn(db), { accountId: pick(accounts), timeZone: pick(zones), at: now, changeId: uuid() });
    await addDays(db);
  };
  await accountOf();
  const questions = questionsOf(random, questionCount);
  // Its answers depend on the zone of the account, which changes below.
  const check = async (before: readonly unknown[], stage: string): Promise<void> => {
    const after = await answersTo(db, questions);
    for (const [index, answer] of after.entries())
      assert.deepEqual(
        answer,
        before[index],
        `seed ${seed}, ${stage}: question ${index}, ${questions[index]!.toString()}`,
      );
    assert.deepEqual((await verifyLedger(db, { owned: true })).differences, [], `seed ${seed}, ${stage}`);
  };

  let last = 0;
  for (const part of [0.5, 1]) {
    await accountOf();
    const before = await answersTo(db, questions);
    await check(before, 'nothing removed');
    const asked = span.from + Math.floor(part * (span.to - span.from - 2 * dayMs));
    const plan = await planRetention(db, { before: asked, now });
    const { keptSince } = await keepUsageSince(db, { before: asked, now });
    assert.equal(keptSince, Math.floor(asked / dayMs) * dayMs);
    assert.equal(plan.keptSince, keptSince);
    const older = rows.filter(({ endedAt }) => endedAt < keptSince);
    assert.equal(plan.rows, older.length - (await prunedOf(db)));
    await check(before, 'nothing removed yet');

    let removed = 0;
    let next: RemovalCursor | undefined;
    for (let state = 'more'; state === 'more';) {
      // A process that died begins anew.
      const step = await removeUsage(db, { after: random() < 0.3 ? undefined : next, now });
      [state, next, removed] = [step.state, step.next, removed + step.removed];
      if (random() < 0.2) await check(before, `${removed} removed`);
    }
    assert.ok(removed > 0);
    await check(before, 'all removed');
    assert.deepEqual(await removeUsage(db, { now }), { removed: 0, state: 'done' });
    await recomputeUsageHours(db, { now: span.to + 2 * hourMs });
    await check(before, 'and the sums made again');

    // What stays of the older ones: the refunded, and those beside a movement.
    const there = await db.selectFrom('usage').select('request_id').where('ended_at', '<', BigInt(keptSince)).execute();
    assert.equal(there.length + (await prunedOf(db)), older.length);
    assert.ok(there.length < older.length / 2, `${there.length} of ${older.length} stay`);
    await compareDetails(db, rows, keptSince, random);
    await refuseWrong(db, rows, { keptSince, last });
    last = keptSince;
  }
}

async function prunedOf(db: Kysely<Database>): Promise<number> {
  const rows = await db.selectFrom('pruned_usage').select('requests').execute();
  return rows.reduce((sum, { requests }) => sum + Number(requests), 0);
}

/** Lists and look-ups have what is kept, all of it, and nothing older. */
async function compareDetails(
  db: Kysely<Database>,
  rows: readonly UsageRow[],
  keptSince: number,
  random: Random,
): Promise<void> {
  const pick = picker(random);
  const idOf = ({ requestId }: UsageRow): string => uuidText(requestId);
  const byEnd = (one: UsageRow, other: UsageRow): number =>
    other.endedAt - one.endedAt || Buffer.compare(other.requestId, one.requestId);
  for (const accountId of accounts) {
    const own = rows.filter((row) => row.accountId === accountId);
    const kept = own
      .filter(({ endedAt }) => endedAt >= keptSince)
      .map(idOf)
      .sort();
    const newest = own.filter(({ endedAt }) => endedAt >= keptSince).sort(byEnd);
    const listed = [];
    for (let before: Parameters<typeof listGenerations>[1]['before']; ;) {
      const page = await listGenerations(rowsOn(db), {
        accountId,
        limit: 500,
        ...(before === undefined ? {} : { before }),
      });
      assert.equal(page.keptSince, keptSince);
      listed.push(...page.rows.map(idOf));
      if (page.next === undefined) break;
      before = page.next;
    }
    assert.deepEqual(listed.sort(), kept);
    assert.deepEqual(
      (await listUsage(rowsOn(db), { accountId, limit: 100 })).map(idOf),
      newest.slice(0, 100).map(idOf),
    );
    for (let index = 0; index < 20; index++) {
      const row = pick(own);
      for (const id of [idOf(row), row.publicId]) {
        const found = await findUsage(rowsOn(db), { accountId, id, now });
        assert.equal(
          found.some((one) => idOf(one) === idOf(row)),
          row.endedAt >= keptSince,
        );
      }
      const cursor = await cursorOf(rowsOn(db), { accountId, requestId: row.requestId });
      assert.ok(cursor, 'a page after it begins there, or there is none');
      if (row.endedAt < keptSince)
        assert.deepEqual((await listGenerations(rowsOn(db), { accountId, limit: 5, before: cursor })).rows, []);
    }
    // Within hours that were removed: refused, or right where all of its rows stay.
    for (let index = 0; index < 20; index++) {
      const from = span.from + Math.floor(random() * (keptSince - span.from));
      const to = from + Math.floor(random() * 10 * hourMs) + 1;
      const right = own
        .filter(({ endedAt }) => from <= endedAt && endedAt < to)
        .reduce((sum, row) => sum + row.costMicrocents, 0n);
      try {
        const sums = await reportUsage(db, { accountId, timeZone: 'UTC', bounds: [from, to], by: [] });
        assert.equal(
          sums.reduce((sum, { cost }) => sum + cost, 0n),
          right,
        );
      } catch (error) {
        assert.ok(error instanceof StoreError && error.code === 'gone', String(error));
      }
    }
  }
}

/** The database itself holds to it. */
async function refuseWrong(
  db: Kysely<Database>,
  rows: readonly UsageRow[],
  { keptSince, last }: { readonly keptSince: number; readonly last: number },
): Promise<void> {
  const isRefused = (error: unknown): boolean => /retention|immutable/.test((error as Error).message);
  // M3: what is settled again when its row is gone is not charged again.
  const there = await db.selectFrom('usage').select('request_id').where('ended_at', '<', BigInt(keptSince)).execute();
  const staying = new Set(there.map(({ request_id: id }) => uuidText(id)));
  const gone = rows.filter(
    ({ endedAt, requestId }) => endedAt >= last && endedAt < keptSince && !staying.has(uuidText(requestId)),
  );
  await assert.rejects(insertUsage(db, [gone[0]!]), isRefused);
  const kept = rows.find(({ endedAt }) => endedAt >= keptSince)!;
  await assert.rejects(db.deleteFrom('usage').where('request_id', '=', kept.requestId).execute(), isRefused);
  await assert.rejects(db.updateTable('usage').set({ cost: 0n }).execute(), isRefused);
  for (const table of ['usage_hour', 'usage_tag_hour', 'usage_tier_hour'] as const) {
    const old = db.selectFrom(table).select('hour').where('hour', '<', BigInt(keptSince)).limit(1);
    const { hour } = await old.executeTakeFirstOrThrow();
    await assert.rejects(db.deleteFrom(table).where('hour', '=', hour).execute(), isRefused);
    await assert.rejects(db.updateTable(table).set({ cost: 0n }).where('hour', '=', hour).execute(), isRefused);
  }
  await assert.rejects(db.deleteFrom('pruned_usage').execute(), isRefused);
  await assert.rejects(db.updateTable('pruned_usage').set({ cost: 0n }).execute(), isRefused);
  await assert.rejects(db.updateTable('usage_retention').set({ kept_since: 0 }).execute(), isRefused);
  await assert.rejects(db.deleteFrom('usage_retention').execute(), isRefused);
}
