/**
 * The store of better-auth (decision 014): each of its calls is one request here, one statement or one short transaction, on listed tables
 * and columns.
 */
import { sql, type ExpressionBuilder, type Expression, type Kysely, type SqlBool } from 'kysely';
import type { Database } from '../database.ts';
import type { Kind } from '../schema/column.ts';
import { columnsOf, tables, type TableName } from '../schema/tables.ts';
import { StoreError } from '../store-error.ts';
import { endSecrets, type PersonEvent } from './one-time-secrets.ts';

type Db = Kysely<Database>;

/** Every table that better-auth may touch, with the type of each column; a test compares them with what it requires. */
export const authTables = Object.fromEntries(
  (Object.keys(tables) as TableName[])
    .filter((table) => table.startsWith('auth_'))
    .map((table) => [
      table,
      Object.fromEntries(Object.entries(columnsOf(table)).map(([column, { kind }]) => [column, kind])),
    ]),
) as Readonly<Record<AuthTable, Readonly<Record<string, Kind>>>>;

export type AuthTable = Extract<TableName, `auth_${string}`>;
/** Times and flags are numbers here. */
export type AuthValue = string | number | null;
export type AuthRow = Readonly<Record<string, AuthValue>>;

export const authOperators = ['eq', 'ne', 'lt', 'lte', 'gt', 'gte', 'in', 'not_in'] as const;

export interface AuthCondition {
  readonly column: string;
  readonly operator: (typeof authOperators)[number];
  readonly value: AuthValue | readonly AuthValue[];
  readonly connector: 'AND' | 'OR';
}

type Where = readonly AuthCondition[];

export type AuthRequest = { readonly table: AuthTable } & (
  | { readonly act: 'create'; readonly row: AuthRow }
  | {
      readonly act: 'find';
      readonly where: Where;
      readonly limit: number;
      readonly offset?: number | undefined;
      readonly sortBy?: { readonly column: string; readonly direction: 'asc' | 'desc' } | undefined;
    }
  | { readonly act: 'count'; readonly where: Where }
  /** Changes at most one row, unless `many`. The numbers in `add` are added to the stored values. */
  | {
      readonly act: 'update';
      readonly where: Where;
      readonly set: AuthRow;
      readonly add?: AuthRow;
      readonly many: boolean;
      /** The session in which the change happens. */
      readonly sessionId?: string | undefined;
    }
  /** Returns what was deleted; `one`: exactly one of several concurrent callers gets it. */
  | { readonly act: 'delete'; readonly where: Where; readonly one: boolean }
);

export interface AuthAnswer {
  /** The rows found, created or changed; for `delete` with `one`, deleted. */
  readonly rows: readonly AuthRow[];
  readonly count: number;
}

const rowsMax = 1000;

/** Handles one call. Throws a StoreError `invalid` for a table or column that is not listed. */
export async function authStore(db: Db, request: AuthRequest): Promise<AuthAnswer> {
  if (!Object.hasOwn(authTables, request.table)) throw new StoreError('invalid', 'no such table of sign-in');
  const columns = authTables[request.table];
  const known = (column: string): string => {
    if (!Object.hasOwn(columns, column)) throw new StoreError('invalid', `no such column of ${request.table}`);
    return column;
  };
  const matching = (where: Where) => conditionOf(where, known);
  const { table } = request;
  // Tables and columns are checked at run time, because no type covers all of them together.
  const any = db as unknown as Kysely<Record<AuthTable, Record<string, unknown>>>;
  switch (request.act) {
    case 'create': {
      for (const column of Object.keys(request.row)) known(column);
      const rows = [request.row];
      return await withEvent(any, eventOf(table, request.row), undefined, async (transaction) => {
        await transaction.insertInto(table).values(request.row).execute();
        return { rows, count: 1 };
      });
    }
    case 'find': {
      let query = any.selectFrom(table).selectAll().where(matching(request.where));
      const { sortBy, offset } = request;
      if (sortBy !== undefined) query = query.orderBy(known(sortBy.column), sortBy.direction);
      if (offset !== undefined) query = query.offset(offset);
      const rows = await query.limit(Math.max(0, Math.min(request.limit, rowsMax))).execute();
      return { rows: rows.map(plain), count: rows.length };
    }
    case 'count': {
      const row = await any
        .selectFrom(table)
        .select(({ fn }) => fn.countAll<bigint>().as('count'))
        .where(matching(request.where))
        .executeTakeFirstOrThrow();
      return { rows: [], count: Number(row.count) };
    }
    case 'update':
      return await update(any, request, known);
    case 'delete': {
      if (!request.one) {
        const { numDeletedRows } = await any.deleteFrom(table).where(matching(request.where)).executeTakeFirst();
        return { rows: [], count: Number(numDeletedRows) };
      }
      const one = any.selectFrom(table).select('id').where(matching(request.where)).limit(1);
      const gone = await any.deleteFrom(table).where('id', 'in', one).returningAll().execute();
      return { rows: gone.map(plain), count: gone.length };
    }
  }
}

async function update(
  db: Kysely<Record<AuthTable, Record<string, unknown>>>,
  { table, where, set, add = {}, many, sessionId }: Extract<AuthRequest, { readonly act: 'update' }>,
  known: (column: string) => string,
): Promise<AuthAnswer> {
  const changes: Record<string, unknown> = {};
  for (const [column, value] of Object.entries(set)) changes[known(column)] = value;
  for (const [column, value] of Object.entries(add))
    changes[known(column)] = sql`coalesce(${sql.ref(column)}, 0) + ${value}`;
  const condition = conditionOf(where, known);
  const write = async (transaction: typeof db): Promise<AuthAnswer> => {
    const chosen = many
      ? transaction.updateTable(table).set(changes).where(condition)
      : transaction
          .updateTable(table)
          .set(changes)
          .where(condition)
          .where('id', 'in', transaction.selectFrom(table).select('id').where(condition).limit(1));
    const rows = await chosen.returningAll().execute();
    return { rows: rows.map(plain), count: rows.length };
  };
  return await withEvent(db, eventOf(table, set), sessionId, write);
}

/** The event, if any, by which a write changes how a person proves their identity, regardless of the caller. */
function eventOf(table: AuthTable, written: AuthRow): PersonEvent | undefined {
  if (table === 'auth_account') return typeof written['password'] === 'string' ? 'password_set' : undefined;
  if (table === 'auth_passkey') return written['publicKey'] === undefined ? undefined : 'way_in_added';
  if (table !== 'auth_user' || written['id'] !== undefined) return undefined;
  if (written['email'] !== undefined) return 'address_changed';
  return written['twoFactorEnabled'] === undefined ? undefined : 'codes_switched';
}

/** Applies the event's consequences in the same transaction, so that an old password keeps no one signed in. */
async function withEvent<AnyDb extends Kysely<Record<AuthTable, Record<string, unknown>>>>(
  db: AnyDb,
  event: PersonEvent | undefined,
  sessionId: string | undefined,
  write: (transaction: AnyDb) => Promise<AuthAnswer>,
): Promise<AuthAnswer> {
  if (event === undefined) return await write(db);
  return await db.transaction().execute(async (transaction) => {
    const written = await write(transaction as unknown as AnyDb);
    const known = transaction as unknown as Db;
    for (const row of written.rows)
      await endSecrets(known, event, { userId: String(row['userId'] ?? row['id']), sessionId });
    return written;
  });
}

const comparisons = { eq: '=', ne: '<>', lt: '<', lte: '<=', gt: '>', gte: '>=' } as const;

/** All AND conditions must hold, and one of the OR conditions, as better-auth defines it. */
function conditionOf(where: Where, known: (column: string) => string) {
  return (is: ExpressionBuilder<Record<AuthTable, Record<string, unknown>>, AuthTable>): Expression<SqlBool> => {
    const one = ({ column, operator, value }: AuthCondition): Expression<SqlBool> => {
      const name = known(column) as never;
      if (operator === 'in' || operator === 'not_in') {
        const values = Array.isArray(value) ? (value as readonly AuthValue[]) : [value as AuthValue];
        if (values.length === 0) return operator === 'in' ? sql<SqlBool>`1 = 0` : sql<SqlBool>`1 = 1`;
        return is(name, operator === 'in' ? 'in' : 'not in', values as never);
      }
      if (value === null) return is(name, operator === 'ne' ? 'is not' : 'is', null as never);
      return is(name, comparisons[operator], value as never);
    };
    const all = where.filter(({ connector }) => connector === 'AND').map(one);
    const some = where.filter(({ connector }) => connector === 'OR').map(one);
    return is.and([...all, ...(some.length === 0 ? [] : [is.or(some)])]);
  };
}

/** Integers are read as bigint, which better-auth cannot handle. */
const plain = (row: Record<string, unknown>): AuthRow =>
  Object.fromEntries(
    Object.entries(row).map(([column, value]) => [
      column,
      typeof value === 'bigint' ? Number(value) : (value as AuthValue),
    ]),
  );
