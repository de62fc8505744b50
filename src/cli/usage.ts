import { exportedGenerations, generationColumns, generationTotals } from '../account-api/exported-generation.ts';
import { printExport } from '../account-api/export.ts';
import { fallbackFrom } from '../account-api/generation-object.ts';
import { accountMeant } from '../accounts/operation.ts';
import { dollars } from '../platform/dollars.ts';
import { uuidText } from '../platform/ids/uuid.ts';
import type { UsageRow } from '../store/ledger.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';

export async function showUsage(
  context: Context,
  options: { readonly account?: string; readonly tag?: string; readonly limit: number; readonly csv?: boolean },
): Promise<number> {
  if (options.csv === true) return await printCsv(context, options);
  const { account: accountId, tag } = options;
  const filter = { ...(accountId === undefined ? {} : { accountId }), ...(tag === undefined ? {} : { tag }) };
  const { rows, accounts } = await reading(context, async (repositories) => ({
    rows: await repositories.listUsage({ ...filter, limit: options.limit }),
    accounts: (await repositories.listAccounts({})).filter(
      (account) => options.account === undefined || account.id === options.account,
    ),
  }));
  context.print.result(
    {
      requests: rows.map((row) => ({
        id: uuidText(row.requestId),
        request_id: row.publicId,
        account: row.accountId,
        key: row.keyId,
        model: row.modelId,
        fallback_from: fallbackFrom(row),
        api: row.api,
        streamed: row.streamed,
        started_at: new Date(row.startedAt).toISOString(),
        ended_at: new Date(row.endedAt).toISOString(),
        prompt_tokens: row.promptTokens,
        cached_tokens: row.cachedTokens,
        completion_tokens: row.completionTokens,
        reasoning_tokens: row.reasoningTokens,
        counted: row.counted,
        cost_microcents: row.costMicrocents,
        uncharged_microcents: row.unchargedMicrocents,
        hold_microcents: row.holdMicrocents,
        plan: row.plan,
        ending: row.ending,
        finish: row.finish,
        error: row.errorCode,
        backend: row.backend,
        first_token_ms: row.firstTokenMs,
        total_ms: row.totalMs,
        tags: row.tags === null ? [] : (JSON.parse(row.tags) as string[]),
      })),
      balances: accounts.map((account) => ({ account: account.id, balance_microcents: account.balanceMicrocents })),
    },
    [
      ...table(
        ['ended', 'request', 'model', 'prompt', 'cached', 'output', 'cost', 'ending'],
        rows.map((row) => [
          new Date(row.endedAt).toISOString().slice(0, 19).replace('T', ' '),
          row.publicId,
          modelCell(row),
          row.promptTokens,
          row.cachedTokens,
          row.completionTokens,
          dollars(row.costMicrocents),
          row.ending,
        ]),
      ),
      '',
      ...accounts.map((account) => `balance of ${account.id}: ${dollars(account.balanceMicrocents)}`),
    ],
  );
  return 0;
}

/** `small, not large` where the second was asked for. */
function modelCell(row: UsageRow): string {
  const asked = fallbackFrom(row);
  return asked === null ? row.modelId : `${row.modelId}, not ${asked}`;
}

/** The requests of an account, in the form of GET /v1/export/generations.csv. */
async function printCsv(
  context: Context,
  { account, tag }: { readonly account?: string; readonly tag?: string },
): Promise<number> {
  await reading(context, async (repositories, _db, now) => {
    const accountId = await accountMeant(account, repositories);
    const { timeZone } = (await repositories.getAccount({ accountId }))!;
    const filter = { accountId, to: (await now()) + 1, ...(tag === undefined ? {} : { tag }) };
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
