/** Movements of money between accounts. */
import type { Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';
import { pageOf } from './page.ts';

type Db = Kysely<Rows>;

export type TransferRow = Omit<Row<'transfer'>, 'idempotencyKey'>;

/** Transfers from and to an account, newest first. */
export async function listTransfers(
  db: Db,
  request: { readonly accountId: string; readonly limit?: number },
): Promise<readonly TransferRow[]> {
  return await db
    .selectFrom('transfer')
    .select(['id', 'debitAccount', 'creditAccount', 'amountMicrocents', 'kind', 'reference', 'by', 'at'])
    .where((is) => is.or([is('debitAccount', '=', request.accountId), is('creditAccount', '=', request.accountId)]))
    .orderBy('at', 'desc')
    .orderBy('id', 'desc')
    .limit(pageOf(request.limit))
    .execute();
}
