import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { systemAccounts, type Ending, type TransferKind } from '../ledger.ts';
import { inOrderOfTime } from '../one-moment.ts';
import { leased } from '../repositories/accounts.ts';
import { isInMonthsOf } from '../reports/usage-months.ts';
import { verifyHeads } from './verify-heads.ts';
import { verifyPayments } from './verify-payments.ts';
import { retentionOf } from '../retention/retention.ts';
import { labelsIn, OlderUsage, verifyRollUps } from './verify-usage.ts';
import type { Difference, Report } from './difference.ts';
import { pagesByKey } from './pages.ts';
import { BudgetTotals } from './verify-budgets.ts';
import { timeOfUuid, uuidText } from '../../platform/ids/uuid.ts';

export interface Verification {
  /** Empty if every balance and every row is right. At most `differencesMax`. */
  readonly differences: readonly Difference[];
  readonly accounts: number;
  readonly transfers: number;
  readonly usageRows: number;
  /** Number of requests whose rows are removed; their sums are still compared. */
  readonly prunedRequests: number;
  /** Number of hours of usage_hour that were compared. */
  readonly hours: number;
}

export interface VerifyOptions {
  /** Whether a process owns the database now. Without an owner, nothing can be running (M8). */
  readonly owned: boolean;
}

const differencesMax = 1000;
const pageRows = 2000;
const byBytes = { first: new Uint8Array(0), size: pageRows };

/**
 * Recomputes every balance, budget and roll-up from the underlying rows, and every price from its tokens. Sums are computed here in bigint,
 * so they are exact at any size, and no figure computed by the hot path is used. Reads one moment of the database, even beside a running
 * service.
 */
export function verifyLedger(db: Kysely<Database>, options: VerifyOptions): Promise<Verification> {
  return inOrderOfTime(db, async (moment) => {
    const differences: Difference[] = [];
    const report: Report = (difference) => {
      if (differences.length < differencesMax) differences.push(difference);
    };
    const transfers = await sumTransfers(moment, report);
    const budgets = await BudgetTotals.read(moment);
    const { keptSince } = await retentionOf(moment);
    const usage = await sumUsage(moment, budgets, keptSince, report);
    const prunedRequests = await addPruned(moment, budgets, usage, report);
    for (const difference of budgets.differences()) report(difference);
    const accounts = await compareBalances(moment, transfers.net, usage.cost, report);
    if (!options.owned) await refuseOpenRequests(moment, report);
    const rollUps = { everywhere: usage.strays > 0, keptSince, older: usage.older };
    const hours = await verifyRollUps(moment, rollUps, report);
    await verifyPayments(moment, report);
    await verifyHeads(moment, keptSince, report);
    return { differences, accounts, transfers: transfers.count, usageRows: usage.count, prunedRequests, hours };
  });
}

const kinds: Readonly<Record<TransferKind, true>> = {
  topup: true,
  grant: true,
  refund: true,
  adjust: true,
  chargeback: true,
  expiry: true,
  usage_closed: true,
};

/** Credits less debits of every account. */
async function sumTransfers(
  db: Kysely<Database>,
  report: Report,
): Promise<{ net: Map<string, bigint>; count: number }> {
  const net = new Map<string, bigint>();
  let count = 0;
  const pages = pagesByKey({
    ...byBytes,
    read: (after) =>
      db
        .selectFrom('transfer')
        .select(['id', 'debit_account', 'credit_account', 'amount', 'kind'])
        .where('id', '>', after)
        .orderBy('id'),
    keyOf: ({ id }) => Uint8Array.from(id),
  });
  for await (const rows of pages) {
    for (const row of rows) {
      add(net, row.debit_account, -row.amount);
      add(net, row.credit_account, row.amount);
      if (!Object.hasOwn(kinds, row.kind))
        report({
          accountId: row.credit_account,
          what: `transfer ${uuidText(row.id)}: kind`,
          expected: Object.keys(kinds).join(', '),
          found: row.kind,
        });
    }
    count += rows.length;
  }
  return { net, count };
}

interface UsageTotals {
  readonly cost: Map<string, bigint>;
  readonly count: number;
  /** Number of rows that a query by time does not find. */
  readonly strays: number;
  /** Usage that ended before the retention. */
  readonly older: OlderUsage;
}

/** Sums the cost of every account's usage; each row is checked on the way. */
async function sumUsage(
  db: Kysely<Database>,
  budgets: BudgetTotals,
  keptSince: number,
  report: Report,
): Promise<UsageTotals> {
  const cost = new Map<string, bigint>();
  const older = new OlderUsage();
  let count = 0;
  let strays = 0;
  const pages = pagesByKey({
    ...byBytes,
    read: (after) =>
      db
        .selectFrom('usage')
        .select([
          'request_id',
          'account_id',
          'key_id',
          'model_id',
          'tags',
          'key_budget',
          'account_budget',
          'member_budget',
          'started_at',
          'ended_at',
          'prompt_tokens',
          'cached_tokens',
          'completion_tokens',
          'reasoning_tokens',
          'cost',
          'uncharged',
          'hold',
          'ending',
          'input_price',
          'output_price',
          'cache_read_price',
        ])
        .where('request_id', '>', after)
        .orderBy('request_id'),
    keyOf: ({ request_id: id }) => Uint8Array.from(id),
  });
  for await (const rows of pages) {
    for (const row of rows) {
      add(cost, row.account_id, row.cost);
      budgets.add(row);
      if (row.ended_at < BigInt(keptSince)) older.add({ ...row, requests: 1n });
      // The name of each row would be a twentieth of all the work.
      const reportOf: Report = (fault) =>
        report({ ...fault, what: `usage ${uuidText(row.request_id)}: ${fault.what}` });
      refuseLabels(row, reportOf);
      if (!isInMonthsOf(Number(row.ended_at), timeOfUuid(row.request_id))) strays += 1;
      for (const fault of faultsOf(row)) reportOf({ accountId: row.account_id, ...fault });
    }
    count += rows.length;
  }
  return { cost, count, strays, older };
}

/** Adds the sums of removed rows. Resolves with the number of rows. */
async function addPruned(
  db: Kysely<Database>,
  budgets: BudgetTotals,
  { cost, older }: Pick<UsageTotals, 'cost' | 'older'>,
  report: Report,
): Promise<number> {
  let count = 0n;
  const pages = pagesByKey({
    ...byBytes,
    read: (after) => db.selectFrom('pruned_usage').selectAll().where('id', '>', after).orderBy('id'),
    keyOf: ({ id }) => Uint8Array.from(id),
  });
  for await (const rows of pages)
    for (const row of rows) {
      add(cost, row.account_id, row.cost);
      budgets.add({ ...row, started_at: row.day });
      older.add(row);
      refuseLabels(row, (fault) => report({ ...fault, what: `removed usage ${uuidText(row.id)}: ${fault.what}` }));
      count += row.requests;
    }
  return Number(count);
}

function refuseLabels(
  { account_id: accountId, tags }: { readonly account_id: string; readonly tags: string | null },
  report: Report,
): void {
  if (labelsIn(tags) === undefined) report({ accountId, what: 'tags', expected: 'a list of texts', found: tags! });
}

interface UsageFigures {
  readonly started_at: bigint;
  readonly ended_at: bigint;
  readonly prompt_tokens: bigint;
  readonly cached_tokens: bigint;
  readonly completion_tokens: bigint;
  readonly reasoning_tokens: bigint;
  readonly cost: bigint;
  readonly uncharged: bigint;
  readonly hold: bigint;
  readonly ending: string;
  readonly input_price: bigint;
  readonly output_price: bigint;
  readonly cache_read_price: bigint;
}

/** The faults of a single usage row. */
function* faultsOf(row: UsageFigures): Generator<{ what: string; expected: string | bigint; found: string | bigint }> {
  const charge = chargeOf[row.ending as Ending];
  if (charge === undefined) yield { what: 'ending', expected: 'one of the table of endings', found: row.ending };
  if (row.cost < 0n) yield { what: 'cost', expected: 'at least 0', found: row.cost };
  if (row.cost > row.hold) yield { what: 'cost', expected: `at most the hold of ${row.hold}`, found: row.cost }; // M2
  if (row.uncharged < 0n) yield { what: 'uncharged', expected: 'at least 0', found: row.uncharged };
  for (const column of ['prompt_tokens', 'cached_tokens', 'completion_tokens', 'reasoning_tokens'] as const) {
    if (row[column] < 0n) yield { what: column, expected: 'at least 0', found: row[column] };
  }
  if (row.cached_tokens > row.prompt_tokens) {
    yield {
      what: 'cached_tokens',
      expected: `at most the ${row.prompt_tokens} of the prompt`,
      found: row.cached_tokens,
    };
  }
  if (row.reasoning_tokens > row.completion_tokens) {
    yield {
      what: 'reasoning_tokens',
      expected: `at most the ${row.completion_tokens} of the completion`,
      found: row.reasoning_tokens,
    };
  }
  if (row.ended_at < row.started_at) {
    yield { what: 'ended_at', expected: `not before the start at ${row.started_at}`, found: row.ended_at };
  }
  // For a crashed request only the hold is known.
  const list = charge === 'hold' ? row.hold : listCost(row);
  const cost = charge === 'list' ? (list < row.hold ? list : row.hold) : 0n;
  if (row.cost !== cost) yield { what: 'cost, from tokens and prices', expected: cost, found: row.cost };
  if (row.uncharged !== list - cost)
    yield { what: 'uncharged, from tokens and prices', expected: list - cost, found: row.uncharged };
}

/** The part of the table of endings (docs/money.md) that applies to an ending. */
const chargeOf: Readonly<Record<Ending, 'list' | 'nothing' | 'hold'>> = {
  finished: 'list',
  credit: 'list',
  client_left: 'list',
  reader_stalled: 'list',
  revoked: 'list',
  failed: 'nothing',
  deadline: 'nothing',
  drained: 'nothing',
  cancelled: 'nothing',
  lost: 'nothing',
  crashed: 'hold',
};

/** ceil(Σ tokens × price / 10⁶), cached tokens at their own price. Deliberately reimplemented here, because it checks the pricing. */
function listCost(row: UsageFigures): bigint {
  const millionths =
    (row.prompt_tokens - row.cached_tokens) * row.input_price +
    row.cached_tokens * row.cache_read_price +
    row.completion_tokens * row.output_price;
  return (millionths + 999_999n) / 1_000_000n;
}

const systemIds: ReadonlySet<string> = new Set(Object.values(systemAccounts));

/** M4: credits − debits − usage = available + what is leased, for each account and in total. */
async function compareBalances(
  db: Kysely<Database>,
  net: ReadonlyMap<string, bigint>,
  cost: ReadonlyMap<string, bigint>,
  report: Report,
): Promise<number> {
  let count = 0;
  let total = 0n;
  const unknown = new Set([...net.keys(), ...cost.keys()]);
  const pages = pagesByKey({
    first: '',
    size: pageRows,
    read: (after) =>
      db
        .selectFrom('account')
        .select(['id', 'kind', 'available', 'credit_limit', leased()])
        .where('id', '>', after)
        .orderBy('id'),
    keyOf: ({ id }) => id,
  });
  for await (const rows of pages) {
    for (const { id, kind, available, leased: inSlices, credit_limit } of rows) {
      unknown.delete(id);
      const balance = available + inSlices;
      total += balance;
      const expected = (net.get(id) ?? 0n) - (cost.get(id) ?? 0n);
      if (balance !== expected) report({ accountId: id, what: 'balance', expected, found: balance });
      if ((kind === 0n) === systemIds.has(id))
        report({ accountId: id, what: 'kind', expected: kind === 0n ? 'of the service' : '0', found: kind });
      if (kind === 0n && available < -credit_limit) {
        report({ accountId: id, what: 'balance', expected: `at least ${-credit_limit}`, found: available }); // I2
      }
    }
    count += rows.length;
  }
  for (const id of unknown) report({ accountId: id, what: 'account', expected: 'exists', found: 'missing' });
  // Transfers move money between accounts and create none; the missing total is what has been used.
  const used = [...cost.values()].reduce((sum, value) => sum + value, 0n);
  if (total + used !== 0n)
    report({ accountId: null, what: 'all balances and all usage', expected: 0n, found: total + used });
  return count;
}

/** M8. */
async function refuseOpenRequests(db: Kysely<Database>, report: Report): Promise<void> {
  const rows = await db.selectFrom('open_request').select(['request_id', 'account_id']).limit(differencesMax).execute();
  for (const row of rows) {
    const what = `open request ${uuidText(row.request_id)}`;
    report({ accountId: row.account_id, what, expected: 'none, because no process runs', found: 'open' });
  }
}

function add(sums: Map<string, bigint>, key: string, value: bigint): void {
  sums.set(key, (sums.get(key) ?? 0n) + value);
}
