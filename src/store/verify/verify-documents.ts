/** Checks issued papers: their numbers have no gap, what their rows say is what they print, and the sums that they print are right. */
import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { documentNumber } from '../repositories/numbered-documents.ts';
import { pagesByKey } from './pages.ts';
import type { Report } from './difference.ts';

const pageRows = 500;

export async function verifyDocuments(db: Kysely<Database>, report: Report): Promise<void> {
  for (const table of ['receipt', 'invoice'] as const) {
    const numbers = new Map<string, string>();
    const pages = pagesByKey({
      first: { year: 0n, sequence: 0n },
      size: pageRows,
      read: ({ year, sequence }) =>
        db
          .selectFrom(table as 'receipt')
          .selectAll()
          .where((is) => is(is.refTuple('year', 'sequence'), '>', is.tuple(year, sequence)))
          .orderBy('year')
          .orderBy('sequence'),
      keyOf: ({ year, sequence }) => ({ year, sequence }),
    });
    let before = { year: 0n, sequence: 0n };
    for await (const rows of pages)
      for (const row of rows) {
        const { account_id: accountId, year, sequence } = row;
        const next = year === before.year ? before.sequence + 1n : 1n;
        if (sequence !== next)
          report({ accountId: null, what: `${table}s of ${year}`, expected: next, found: sequence });
        before = row;
        numbers.set(row.id, row.number);
        const what = `${table} ${row.number}`;
        const compare = (column: string, expected: string, found: string): void => {
          if (expected !== found) report({ accountId, what: `${what}: ${column}`, expected, found });
        };
        const end = documentNumber('', Number(year), Number(sequence));
        compare('number', end, row.number.slice(-end.length));
        try {
          for (const [column, printed, found] of comparisons(row, JSON.parse(row.data) as Paper, numbers))
            compare(column, printed, found);
        } catch (error) {
          compare('data', 'what a paper prints', String(error));
        }
      }
  }
}

type Row = Readonly<Record<'account_id' | 'corrects' | 'kind', string>> & {
  readonly total: bigint;
  /** Only receipts have them. */
  readonly topup_id?: string | null;
  readonly method?: string;
  /** Only statements and credit notes have it. */
  readonly closing?: bigint;
};

/** What is stored of a paper beside what it prints, and the sums in it: the column, what it should be, and what it is. */
function* comparisons(
  row: Row,
  paper: Paper,
  numbers: ReadonlyMap<string, string>,
): Generator<readonly [column: string, expected: string, found: string]> {
  yield ['total', paper.totalMicrocents, String(row.total)];
  yield ['account', paper.account.id, row.account_id];
  const corrected = (paper.corrects ?? paper.creditNote?.corrects)?.number ?? 'none';
  yield ['corrects', corrected, row.corrects === '' ? 'none' : (numbers.get(row.corrects) ?? row.corrects)];
  if (row.method !== undefined) {
    yield ['method', paper.method ?? 'none', row.method];
    yield ['top-up', paper.topupId ?? 'none', row.topup_id ?? 'none'];
    const kinds = paper.corrects === null ? ['receipt'] : ['credit_note', 'credit_note_reversal'];
    if (!kinds.includes(row.kind)) yield ['kind', kinds.join(' or '), row.kind];
    return;
  }
  const { statement = null } = paper;
  yield ['kind', statement === null ? 'credit_note' : 'statement', row.kind];
  if (statement === null) return;
  const sum = (list: readonly { readonly microcents: string }[]): bigint =>
    list.reduce((all, { microcents }) => all + BigInt(microcents), 0n);
  const usage = BigInt(statement.usageMicrocents);
  yield ['usage', String(sum(statement.lines)), String(usage)];
  yield ['total, from usage and refunds', String(usage - BigInt(statement.refundsMicrocents)), String(row.total)];
  const closing =
    BigInt(statement.openingMicrocents) + BigInt(statement.earlierMicrocents) - usage + sum(statement.movements);
  yield ['closing, from the sums', String(closing), statement.closingMicrocents];
  yield ['closing', statement.closingMicrocents, String(row.closing)];
}

/** The parts of what papers print that are compared (billing/invoices). */
interface Paper {
  readonly totalMicrocents: string;
  readonly account: { readonly id: string };
  readonly corrects?: { readonly number: string } | null;
  readonly method?: string;
  readonly topupId?: string | null;
  readonly creditNote?: { readonly corrects: { readonly number: string } } | null;
  readonly statement?: {
    readonly openingMicrocents: string;
    readonly earlierMicrocents: string;
    readonly lines: readonly { readonly microcents: string }[];
    readonly usageMicrocents: string;
    readonly refundsMicrocents: string;
    readonly movements: readonly { readonly microcents: string }[];
    readonly closingMicrocents: string;
  } | null;
}
