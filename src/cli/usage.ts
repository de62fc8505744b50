import { open } from 'node:fs/promises';

import { exportedGenerations, generationColumns } from '../account-api/exported-generation.ts';
import { printExport } from '../account-api/export.ts';
import type { Columns, Exported } from '../account-api/columns.ts';
import { generationReceipts } from '../account-api/generation-object.ts';
import { everyAccount } from '../accounts/every-account.ts';
import { accountMeant, OperationError } from '../accounts/operation.ts';
import { dollars } from '../platform/dollars.ts';
import { uuidText } from '../platform/ids/uuid.ts';
import type { UsageRow } from '../store/ledger.ts';
import type { Account } from '../store/repositories/accounts.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { dayAndTime, table, timeText } from './output.ts';

/** The requests that are asked for. */
interface Which {
  readonly account?: string;
  readonly tag?: string;
  readonly month?: { readonly from: number; readonly to: number };
}

/** Shows the newest requests, with `--json` in the form of GET /v1/generation. */
export async function showUsage(
  context: Context,
  options: Which & { readonly limit: number; readonly csv?: boolean; readonly parquet?: string },
): Promise<number> {
  if (options.csv === true) return await printCsv(context, options);
  if (options.parquet !== undefined) return await writeParquet(context, options, options.parquet);
  const { account: accountId, tag } = options;
  const filter = { ...(accountId === undefined ? {} : { accountId }), ...(tag === undefined ? {} : { tag }) };
  const { requests, accounts } = await reading(context, async ({ repositories }) => ({
    requests: await receiptsOf(await repositories.listUsage({ ...filter, limit: options.limit }), repositories),
    accounts:
      accountId === undefined ? await repositories.listAccounts({}) : await namedAccount(accountId, repositories),
  }));
  context.print.result(
    {
      requests,
      balances: accounts.map((account) => ({
        account_id: account.id,
        balance_microcents: account.balanceMicrocents,
      })),
    },
    [
      ...table(
        ['ended', 'request', 'model', 'prompt', 'cached', 'output', 'cost', 'ending'],
        requests.map((request) => [
          dayAndTime(timeText(request.ended_at)),
          request.request_id,
          // `small, not large` if large was requested.
          request.fallback_from === null ? request.model : `${request.model}, not ${request.fallback_from}`,
          request.tokens_prompt,
          request.tokens_cached,
          request.tokens_completion,
          dollars(BigInt(request.total_cost_microcents)),
          request.ending,
        ]),
      ),
      '',
      ...accounts.map((account) => `balance of ${account.id}: ${dollars(account.balanceMicrocents)}`),
    ],
  );
  return 0;
}

/** Also one that was deleted; empty if there is none. */
async function namedAccount(accountId: string, repositories: Repositories): Promise<readonly Account[]> {
  const account = await repositories.getAccount({ accountId });
  return account === undefined ? [] : [account];
}

/** The receipts of any accounts, in the order of the rows. */
async function receiptsOf(rows: readonly UsageRow[], repositories: Repositories) {
  const receipts = await Promise.all(
    [...new Set(rows.map(({ accountId }) => accountId))].map(async (accountId) => {
      const own = rows.filter((row) => row.accountId === accountId);
      const found = await generationReceipts(accountId, own, repositories);
      return found.map((receipt) => ({ account_id: accountId, ...receipt }));
    }),
  );
  const place = new Map(rows.map(({ requestId }, index) => [uuidText(requestId), index]));
  return receipts.flat().toSorted((a, b) => place.get(a.id)! - place.get(b.id)!);
}

/** Prints the requests of an account, in the form of GET /v1/export/generations.csv. */
async function printCsv(context: Context, which: Which): Promise<number> {
  await reading(context, async ({ repositories, now }) => {
    const accountId = await accountMeant(which.account, repositories);
    const { timeZone } = (await repositories.getAccount({ accountId }))!;
    const rows = exportedGenerations(repositories, filterOf(which, accountId, now), timeZone);
    for await (const piece of printExport('csv', generationColumns, rows)) await context.print.raw(String(piece));
  });
  return 0;
}

/** Writes the requests of an account, or of all of them, with a column that says whose each is, for programs that analyse. */
async function writeParquet(context: Context, which: Which, path: string): Promise<number> {
  const { rows, bytes } = await reading(context, async ({ repositories, now }) => {
    let written = 0;
    async function* pages(): AsyncGenerator<readonly Exported[]> {
      const { account } = which;
      const accounts = account === undefined ? everyAccount(repositories) : await namedAccount(account, repositories);
      for await (const { id, timeZone } of accounts) {
        for await (const page of exportedGenerations(repositories, filterOf(which, id, now), timeZone)) {
          written += page.length;
          yield page.map((row) => ({ account_id: id, ...row }));
        }
      }
    }
    const columns: Columns = { account_id: 'text', ...generationColumns };
    const file = await open(path, 'wx').catch((error: NodeJS.ErrnoException) => {
      throw error.code === 'EEXIST' ? new OperationError(`${path} is there already, and is not overwritten.`) : error;
    });
    try {
      for await (const piece of printExport('parquet', columns, pages())) await file.writeFile(piece);
      return { rows: written, bytes: (await file.stat()).size };
    } finally {
      await file.close();
    }
  });
  context.print.result({ file: path, rows, bytes }, [`${path}: ${rows} requests, ${bytes} bytes`]);
  return 0;
}

const filterOf = ({ tag, month }: Which, accountId: string, now: number) => ({
  accountId,
  // Requests that end meanwhile are not in it.
  to: now + 1,
  ...month,
  ...(tag === undefined ? {} : { tag }),
});
