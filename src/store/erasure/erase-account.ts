/** What is erased when an account is deleted, and the export of all data of an account. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { exportedSections, type ExportedSection, type Section } from './exported-sections.ts';

type Db = Kysely<Database>;

/** Tables in which no row of the account remains. In this order, because deliveries reference their endpoints. */
const erased = [
  'member',
  'invitation',
  'batch',
  'kept_item',
  'idempotent_request',
  'mail',
  'webhook_delivery',
  'webhook_endpoint',
  'notice',
  'alert',
  'auto_topup',
  'payment_method',
  'account_price',
  'error_count',
  'refused_request',
] as const satisfies readonly (keyof Database)[];

/**
 * Erases all data of a suspended customer that accounting does not need: its users, files, stored items, answers, mail, webhooks, alerts,
 * payment methods and prices, refused requests, and all names. Ledger, usage, payments, invoices, receipts and the audit log stay, with ids instead of names.
 * false: there is no such account, or it is not suspended. Idempotent.
 */
export async function eraseAccount(
  db: Db,
  { accountId, at, changeId }: { readonly accountId: string; readonly at: number; readonly changeId: Uint8Array },
): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    const account = await transaction
      .updateTable('account')
      .set((is) => ({
        name: 'deleted account',
        legal_name: null,
        address_lines: null,
        country: null,
        tax_id: null,
        tax_status: 'standard',
        invoice_email: null,
        models: null,
        plan: null,
        limits: null,
        deleted_at: at,
        version: is('version', '+', 1n),
      }))
      .where('id', '=', accountId)
      .where('kind', '=', 0n)
      .where('status', '=', 'suspended')
      .where('deleted_at', 'is', null)
      .returning('id')
      .executeTakeFirst();
    if (account === undefined) return false;
    // Without their batch, lines of any state are in nobody's way: they are content.
    await transaction
      .deleteFrom('batch_line')
      .where('batch_id', 'in', (of) => of.selectFrom('batch').select('id').where('account_id', '=', accountId))
      .execute();
    // The heads above them stay valid.
    await transaction
      .deleteFrom('usage_leaves')
      .where('day', 'in', (of) => of.selectFrom('usage_head').select('day').where('account_id', '=', accountId))
      .where('account_id', '=', accountId)
      .execute();
    for (const table of erased) await transaction.deleteFrom(table).where('account_id', '=', accountId).execute();
    // Charges stay in the balances, as in the rows. Runs after the members, so that none of them gets a budget meanwhile.
    await transaction.deleteFrom('budget').where(isOfAccount(accountId)).execute();
    // The next sweep removes their bytes, and then these rows. Those that are arriving never become ready.
    await transaction
      .updateTable('file')
      .set({ state: 'leaving', name: 'deleted' })
      .where('account_id', '=', accountId)
      .where('state', 'in', ['arriving', 'ready'])
      .execute();
    await transaction
      .updateTable('api_key')
      .set({
        status: 'revoked',
        revoked_at: sql<bigint>`coalesce(revoked_at, ${BigInt(at)})`,
        updated_at: at,
        name: 'deleted',
        user_id: null,
        limits: null,
        tags: null,
        previous_hash: null,
        previous_hash_until: null,
      })
      .where('account_id', '=', accountId)
      .execute();
    await transaction
      .updateTable('audit_log')
      .set({ actor_name: null, address: null, before: null, after: null, input: null })
      .where('account_id', '=', accountId)
      .execute();
    await transaction
      .insertInto('change')
      .values({ id: changeId, at, kind: 'account_deleted', ref: accountId })
      .execute();
    return true;
  });
}

/** Matches the account, its keys and its members, as named by `memberSubject`. */
const isOfAccount = (accountId: string) => sql<boolean>`(subject = ${accountId}
  or owner = ${accountId}
  or subject in (select id from api_key where account_id = ${accountId})
  or owner in (select id from api_key where account_id = ${accountId})
  or substr(subject, 1, ${accountId.length + 1}) = ${`${accountId}/`})`;

const pageMax = 500;
type Row = Readonly<Record<string, string | number | bigint | Uint8Array | null>>;

/** A page of a section in key order, after the last page's final key values. */
export async function exportPage(
  db: Db,
  request: {
    readonly accountId: string;
    readonly section: ExportedSection;
    readonly after?: readonly (string | bigint | Uint8Array)[] | undefined;
  },
): Promise<{ readonly rows: readonly Row[]; readonly next: readonly (string | bigint | Uint8Array)[] | undefined }> {
  const { accountId, after } = request;
  const { table, of, key, without = [], page = pageMax }: Section = exportedSections[request.section];
  const isTheirs = sql.join(
    of.map((column) => sql`${sql.ref(column)} = ${accountId}`),
    sql` or `,
  );
  const columns = sql.join(key.map((column) => sql.ref(column)));
  const behind = after === undefined ? sql`` : sql`and (${columns}) > (${sql.join(after)})`;
  const { rows } = await sql<Row>`
    select * from ${sql.table(table)} where (${isTheirs}) ${behind} order by ${columns} limit ${sql.lit(page)}
  `.execute(db);
  const last = rows.at(-1);
  return {
    rows: rows.map((row) => Object.fromEntries(Object.entries(row).filter(([column]) => !without.includes(column)))),
    next:
      rows.length < page || last === undefined
        ? undefined
        : key.map((column) => last[column] as string | bigint | Uint8Array),
  };
}
