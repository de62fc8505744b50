/** Documents numbered consecutively within a year, without gaps: invoices and receipts. */
import type { Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';

type Db = Kysely<Rows>;
export type DocumentTable = 'invoice' | 'receipt';

/** The last number of a year, in the table's series; 0: there is none yet. */
export async function lastSequence(db: Db, table: DocumentTable, year: number): Promise<number> {
  const last = await db
    .selectFrom(table as 'receipt')
    .where('year', '=', year)
    .select((of) => of.fn.max('sequence').as('sequence'))
    .executeTakeFirst();
  return last?.sequence ?? 0;
}

/** Formats `2026-000123`, after the prefix of its series. */
export const documentNumber = (series: string, year: number, sequence: number): string =>
  `${series}${year}-${String(sequence).padStart(6, '0')}`;

/** Finds one by its id or number, in one account or any. */
export async function getDocument<Table extends DocumentTable>(
  db: Db,
  table: Table,
  request: { readonly accountId?: string; readonly id: string },
): Promise<Row<Table> | undefined> {
  let query = documents(db, table).where((is) => is.or([is('id', '=', request.id), is('number', '=', request.id)]));
  if (request.accountId !== undefined) query = query.where('accountId', '=', request.accountId);
  return (await query.executeTakeFirst()) as Row<Table> | undefined;
}

/**
 * Newest first; `after` is the id of the last one seen. Rejects with `not_found` and the message `missing` if there is no such document.
 */
export async function listDocuments<Table extends DocumentTable>(
  db: Db,
  table: Table,
  request: { readonly accountId?: string; readonly after?: string; readonly limit: number },
  missing: string,
): Promise<readonly Row<Table>[]> {
  let query = documents(db, table).orderBy('year', 'desc').orderBy('sequence', 'desc').limit(request.limit);
  if (request.accountId !== undefined) query = query.where('accountId', '=', request.accountId);
  if (request.after !== undefined) {
    const after = await getDocument<DocumentTable>(db, table, { ...request, id: request.after });
    if (after === undefined) throw new StoreError('not_found', missing);
    query = query.where((is) => is(is.refTuple('year', 'sequence'), '<', is.tuple(after.year, after.sequence)));
  }
  return (await query.execute()) as unknown as readonly Row<Table>[];
}

/** Selects all columns. Both tables have the columns that are used here; the builder is typed for one. */
const documents = (db: Db, table: DocumentTable) => db.selectFrom(table as 'receipt').selectAll();
