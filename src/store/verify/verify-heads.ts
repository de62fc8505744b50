/** Checks the signed days: each signature, chain and root, and each request against the hash that it was signed with. */
import type { Kysely, Selectable } from 'kysely';
import type { Database } from '../database.ts';
import { dayHeadOf } from '../proofs/close-day.ts';
import { accountHeadHash, dateOf, dayHeadHash, isSignedWith, signingKeyId } from '../proofs/forms.ts';
import {
  countByDay,
  dayMs,
  entryBytes,
  hashOf,
  hashOfRow,
  idOf,
  lateDays,
  pageRequests,
  rowsInNoHead,
  rowsWithIds,
} from '../proofs/leaves.ts';
import { hex, treeRoot } from '../proofs/merkle.ts';
import { listSigningKeys } from '../proofs/signing-keys.ts';
import { uuidText } from '../../platform/ids/uuid.ts';
import type { Report } from './difference.ts';
import { pagesByKey } from './pages.ts';

type Db = Kysely<Database>;

const straysMax = 1000;
type Head = Selectable<Database['usage_head']>;

/** Details of requests that ended before `keptSince` may be removed: of their days only the heads are checked. */
export async function verifyHeads(db: Db, keptSince: number, report: Report): Promise<void> {
  const days = await compareDays(db, report);
  if (days === undefined) return;
  await refuseStrays(db, days.last, report);
  const accounts = pagesByKey({
    first: '',
    size: 200,
    read: (after) => db.selectFrom('account').select(['id', 'deleted_at']).where('id', '>', after).orderBy('id'),
    keyOf: ({ id }) => id,
  });
  for await (const page of accounts) {
    const kept = page.filter((account) => account.deleted_at === null).map(({ id }) => id);
    for (const { id } of page) await compareAccount(db, id, kept.includes(id) ? keptSince : Infinity, report);
    await refuseUnsigned(db, kept, { from: Math.max(days.first, keptSince), to: days.last + dayMs }, report);
  }
}

/** The chain of days. Resolves with the first and the last one; undefined: there is none. */
async function compareDays(
  db: Db,
  report: Report,
): Promise<{ readonly first: number; readonly last: number } | undefined> {
  const keys = new Map((await listSigningKeys(db)).map((key) => [key.id, key.publicKey]));
  for (const [id, publicKey] of keys) compare(`signing key ${id}`, signingKeyId(publicKey), id);
  const days = await db.selectFrom('day_head').selectAll().orderBy('day').execute();
  let previous: string | null = null;
  for (const [index, row] of days.entries()) {
    const head = dayHeadOf(row);
    const what = `head of ${head.date}`;
    compare(`${what}: its start`, String(Date.parse(head.date)), String(row.day));
    if (index > 0) compare(`${what}: the day before`, dateOf(row.day - BigInt(dayMs)), dateOf(days[index - 1]!.day));
    compare(`${what}: hash of the head before`, previous ?? 'none', head.previous ?? 'none');
    const heads = await db.selectFrom('usage_head').select('hash').where('day', '=', row.day).orderBy('hash').execute();
    compare(`${what}: root`, head.root, hex(treeRoot(heads.map((one) => one.hash))));
    const key = keys.get(head.key_id);
    if (key === undefined || !isSignedWith(key, head, row.signature))
      report({ accountId: null, what: `${what}: signature`, expected: `of key ${head.key_id}`, found: 'another one' });
    previous = hex(dayHeadHash(head));
  }
  return days.length === 0 ? undefined : { first: Number(days[0]!.day), last: Number(days.at(-1)!.day) };

  function compare(what: string, expected: string, found: string): void {
    if (expected !== found) report({ accountId: null, what, expected, found });
  }
}

/** Heads of accounts that are none, and hashes below no head: those of the day that is being closed come before its heads. */
async function refuseStrays(db: Db, last: number, report: Report): Promise<void> {
  const heads = await db
    .selectFrom('usage_head')
    .leftJoin('account', 'account.id', 'usage_head.account_id')
    .select(['usage_head.account_id', 'usage_head.day'])
    .where('account.id', 'is', null)
    .limit(straysMax)
    .execute();
  for (const { account_id: accountId, day } of heads)
    report({ accountId, what: `head of ${dateOf(day)}: account`, expected: 'one that exists', found: accountId });
  const pages = await db
    .selectFrom('usage_leaves')
    .leftJoin('usage_head', (join) =>
      join
        .onRef('usage_head.account_id', '=', 'usage_leaves.account_id')
        .onRef('usage_head.day', '=', 'usage_leaves.day'),
    )
    .select(['usage_leaves.account_id', 'usage_leaves.day', 'usage_leaves.page'])
    .where('usage_leaves.day', '<=', BigInt(last))
    .where('usage_head.day', 'is', null)
    .limit(straysMax)
    .execute();
  for (const { account_id: accountId, day, page } of pages)
    report({ accountId, what: `head of ${dateOf(day)}`, expected: `one above page ${page}`, found: 'none' });
}

/** The chain of an account's heads, and the requests below those that have them. */
async function compareAccount(db: Db, accountId: string, keptSince: number, report: Report): Promise<void> {
  let previous: string | null = null;
  const heads = await db
    .selectFrom('usage_head')
    .selectAll()
    .where('account_id', '=', accountId)
    .orderBy('day')
    .execute();
  for (const head of heads) {
    const what = `head of ${dateOf(head.day)}`;
    const stored = head.previous === null ? null : hex(head.previous);
    if (stored !== previous)
      report({
        accountId,
        what: `${what}: hash of the head before`,
        expected: previous ?? 'none',
        found: stored ?? 'none',
      });
    const expected = accountHeadHash({
      account_id: accountId,
      date: dateOf(head.day),
      requests: String(head.requests),
      late: String(head.late),
      cost: String(head.cost),
      root: hex(head.root),
      previous: stored,
    });
    if (hex(expected) !== hex(head.hash))
      report({ accountId, what: `${what}: hash`, expected: hex(head.hash), found: hex(expected) });
    previous = hex(head.hash);
    if (Number(head.day) >= keptSince) await compareRequests(db, head, keptSince, report);
  }
}

async function compareRequests(db: Db, head: Head, keptSince: number, report: Report): Promise<void> {
  const accountId = head.account_id;
  const what = `head of ${dateOf(head.day)}`;
  const roots: Uint8Array[] = [];
  let [requests, cost] = [0, 0n];
  let isWhole = true;
  const pages = pagesByKey({
    first: -1n,
    size: 16,
    read: (after) =>
      db
        .selectFrom('usage_leaves')
        .selectAll()
        .where('day', '=', head.day)
        .where('account_id', '=', accountId)
        .where('page', '>', after)
        .orderBy('page'),
    keyOf: ({ page }) => page,
  });
  for await (const some of pages)
    for (const page of some) {
      if (page.page !== BigInt(roots.length))
        report({ accountId, what: `${what}: number of a page`, expected: BigInt(roots.length), found: page.page });
      const size = Math.floor(page.leaves.length / entryBytes);
      const hashes = Array.from({ length: size }, (_, index) => hashOf(page.leaves, index));
      const root = treeRoot(hashes);
      roots.push(root);
      requests += size;
      if (hex(root) !== hex(page.root))
        report({ accountId, what: `${what}: page ${page.page}`, expected: hex(page.root), found: hex(root) });
      const ids = hashes.map((_, index) => idOf(page.leaves, index));
      const rows = await rowsWithIds(db, ids);
      for (let index = 0; index < size; index++) {
        const id = ids[index]!;
        const row = rows.get(hex(id));
        const isLate = Number(page.page) * pageRequests + index < Number(head.late);
        if (row === undefined) {
          isWhole = false;
          // Of earlier days, it may be removed.
          if (!isLate || Number(head.day) - lateDays * dayMs >= keptSince)
            report({ accountId, what: `usage ${uuidText(id)}`, expected: 'as it was signed', found: 'missing' });
          continue;
        }
        cost += row.cost;
        const found = hex(hashOfRow(row));
        const expected = hex(hashes[index]!);
        if (found !== expected) {
          isWhole = false;
          report({ accountId, what: `usage ${uuidText(id)}: not as it was signed`, expected, found });
        }
      }
    }
  const root = treeRoot(roots);
  if (hex(root) !== hex(head.root))
    report({ accountId, what: `${what}: root`, expected: hex(head.root), found: hex(root) });
  if (BigInt(requests) !== head.requests)
    report({ accountId, what: `${what}: requests`, expected: head.requests, found: BigInt(requests) });
  if (isWhole && cost !== head.cost) report({ accountId, what: `${what}: cost`, expected: head.cost, found: cost });
}

/** Requests of signed days that are in no head, and no longer get into one. */
async function refuseUnsigned(
  db: Db,
  accountIds: readonly string[],
  { from, to }: { readonly from: number; readonly to: number },
  report: Report,
): Promise<void> {
  // The next head takes later ones.
  const below = to - lateDays * dayMs;
  if (accountIds.length === 0 || from >= below) return;
  const nameOf = (row: { readonly account_id: string; readonly day: bigint }): string => `${row.account_id} ${row.day}`;
  const signed = new Map<string, bigint>();
  const heads = await db
    .selectFrom('usage_head')
    .select(['account_id', 'day', 'requests', 'late'])
    .where('account_id', 'in', accountIds)
    .where('day', '>=', BigInt(from))
    .execute();
  for (const head of heads) signed.set(nameOf(head), head.requests - head.late);
  for (const row of await countByDay(db, accountIds, from, below)) {
    if (row.requests === (signed.get(nameOf(row)) ?? 0n)) continue;
    for (const { request_id: id } of await rowsInNoHead(db, {
      accountId: row.account_id,
      day: Number(row.day),
      until: to,
    }))
      report({
        accountId: row.account_id,
        what: `usage ${uuidText(id)}`,
        expected: `in the head of ${dateOf(row.day)}, or of a later day`,
        found: 'in none',
      });
  }
}
