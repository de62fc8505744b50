import { exportedGenerations, generationColumns, generationTotals } from '../account-api/exported-generation.ts';
import { printExport } from '../account-api/export.ts';
import { generationReceipts } from '../account-api/generation-object.ts';
import { accountMeant } from '../accounts/operation.ts';
import { dollars } from '../platform/dollars.ts';
import { uuidText } from '../platform/ids/uuid.ts';
import type { UsageRow } from '../store/ledger.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { dayAndTime, table, timeText } from './output.ts';

/** Shows the newest requests, with `--json` in the form of GET /v1/generation. */
export async function showUsage(
  context: Context,
  options: { readonly account?: string; readonly tag?: string; readonly limit: number; readonly csv?: boolean },
): Promise<number> {
  if (options.csv === true) return await printCsv(context, options);
  const { account: accountId, tag } = options;
  const filter = { ...(accountId === undefined ? {} : { accountId }), ...(tag === undefined ? {} : { tag }) };
  const { requests, accounts } = await reading(context, async ({ repositories }) => ({
    requests: await receiptsOf(await repositories.listUsage({ ...filter, limit: options.limit }), repositories),
    accounts: (await repositories.listAccounts({})).filter(
      (account) => options.account === undefined || account.id === options.account,
    ),
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
async function printCsv(
  context: Context,
  { account, tag }: { readonly account?: string; readonly tag?: string },
): Promise<number> {
  await reading(context, async ({ repositories, now }) => {
    const accountId = await accountMeant(account, repositories);
    const { timeZone } = (await repositories.getAccount({ accountId }))!;
    const filter = { accountId, to: now + 1, ...(tag === undefined ? {} : { tag }) };
    for await (const piece of printExport(
      'csv',
      generationColumns,
      generationTotals,
      exportedGenerations(repositories, filter, timeZone),
    ))
      await context.print.raw(piece);
  });
  return 0;
}
