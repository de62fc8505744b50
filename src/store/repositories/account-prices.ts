/** Rates that accounts pay instead of the list prices. */
import type { Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';
import { recordChange } from './changes.ts';
import { pageOf } from './page.ts';

type Db = Kysely<Rows>;

type Stored = Row<'account_price'>;

/** An account's rates for a model instead of the list prices, in microcents per million tokens; null: they say nothing of prices. */
export type AccountPrice = Omit<Stored, 'inputPrice' | 'outputPrice' | 'cacheReadPrice' | 'tierMultiples'> &
  (
    | { readonly input: bigint; readonly output: bigint; readonly cacheRead: bigint }
    | { readonly input: null; readonly output: null; readonly cacheRead: null }
  ) & {
    /** Absent for a tier: the multiple of the rates for all models, else that of the card. */
    readonly tierMultiples?: Stored['tierMultiples'];
  };

/** Adds rates. Rates with another start stay: the applicable rates at any time are those that started last. */
export async function addAccountPrice(
  db: Db,
  request: { readonly price: AccountPrice; readonly at: number; readonly changeId: Uint8Array },
): Promise<void> {
  const { price, at, changeId } = request;
  const { input, output, cacheRead, tierMultiples = null, ...rest } = price;
  await db.transaction().execute(async (transaction) => {
    const account = await transaction
      .selectFrom('account')
      .select('kind')
      .where('id', '=', price.accountId)
      .executeTakeFirst();
    if (account?.kind !== 0) throw new StoreError('not_found', `there is no account ${price.accountId}`);
    const begins = await transaction
      .selectFrom('account_price')
      .select('validFrom')
      .where('accountId', '=', price.accountId)
      .where('modelId', '=', price.modelId)
      .where('validFrom', '=', price.validFrom)
      .executeTakeFirst();
    if (begins !== undefined)
      throw new StoreError('conflict', 'Rates that start at that very time exist already. Remove them first.');
    await transaction
      .insertInto('account_price')
      .values({ ...rest, inputPrice: input, outputPrice: output, cacheReadPrice: cacheRead, tierMultiples })
      .execute();
    await recordChange(transaction, changeId, at, 'account_price', price.accountId);
  });
}

/** Ends an account's rates for a model: current ones stop now, future ones never begin. Returns how many. */
export async function endAccountPrices(
  db: Db,
  request: {
    readonly accountId: string;
    readonly modelId: string;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<number> {
  const { accountId, modelId, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const begun = await transaction
      .updateTable('account_price')
      .set({ validTo: at })
      .where('accountId', '=', accountId)
      .where('modelId', '=', modelId)
      .where('validFrom', '<', at)
      .where((is) => is.or([is('validTo', 'is', null), is('validTo', '>', at)]))
      .executeTakeFirst();
    const toCome = await transaction
      .deleteFrom('account_price')
      .where('accountId', '=', accountId)
      .where('modelId', '=', modelId)
      .where('validFrom', '>=', at)
      .executeTakeFirst();
    const ended = Number(begun.numUpdatedRows + toCome.numDeletedRows);
    if (ended > 0) await recordChange(transaction, changeId, at, 'account_price', accountId);
    return ended;
  });
}

/** Lists rates that are or will be in force at a time, in pages by account, model and start. */
export async function listAccountPrices(
  db: Db,
  request: {
    readonly accountId?: string;
    readonly modelId?: string;
    /** Only those of these accounts, no more accounts than fit on a page. */
    readonly accountIds?: readonly string[];
    readonly endingAfter: number;
    readonly after?: Pick<AccountPrice, 'accountId' | 'modelId' | 'validFrom'>;
    readonly limit?: number;
  },
): Promise<readonly AccountPrice[]> {
  const { accountId, accountIds, modelId, endingAfter, after } = request;
  let query = db
    .selectFrom('account_price')
    .selectAll()
    .where((is) => is.or([is('validTo', 'is', null), is('validTo', '>', endingAfter)]))
    .orderBy('accountId')
    .orderBy('modelId')
    .orderBy('validFrom')
    .limit(pageOf(request.limit));
  if (accountId !== undefined) query = query.where('accountId', '=', accountId);
  if (modelId !== undefined) query = query.where('modelId', '=', modelId);
  if (accountIds !== undefined) query = query.where('accountId', 'in', accountIds);
  if (after !== undefined) {
    query = query.where((is) =>
      is(
        is.refTuple('accountId', 'modelId', 'validFrom'),
        '>',
        is.tuple(after.accountId, after.modelId, after.validFrom),
      ),
    );
  }
  const rows = await query.execute();
  return rows.map(({ inputPrice: input, outputPrice: output, cacheReadPrice: cacheRead, ...price }) =>
    // All three or none.
    input === null || output === null || cacheRead === null
      ? { ...price, input: null, output: null, cacheRead: null }
      : { ...price, input, output, cacheRead },
  );
}
