/** A month of usage in bulk, on any dialect: rows as the ledger writes them, with the balances that they leave. */
import { sql, type Kysely } from 'kysely';
import { publicIdOf, uuidMaker } from '../../src/platform/ids/uuid.ts';
import { costMicrocents } from '../../src/catalog/pricing.ts';
import type { Database } from '../../src/store/database.ts';
import type { Ending, UsageRow } from '../../src/store/ledger.ts';
import { usageColumns, usageValues } from '../../src/store/reports/usage-columns.ts';

/** The same numbers for the same seed: mulberry32. */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface Span {
  readonly accountId: string;
  readonly from: number;
  readonly to: number;
}

const charged: readonly Ending[] = ['finished', 'finished', 'finished', 'finished', 'credit', 'client_left', 'revoked'];
const free: readonly Ending[] = ['failed', 'deadline', 'drained', 'lost'];
const tagsOf: readonly (readonly string[])[] = [[], [], [], ['red'], ['blue'], ['red', 'blue'], ['red-ish']];

/** A request that ended between two times, with prices of its own that change in the middle of the span. */
export function randomRow(random: () => number, { accountId, from, to }: Span, keys: readonly string[]): UsageRow {
  const pick = <Value>(list: readonly Value[]): Value => list[Math.floor(random() * list.length)]!;
  const endedAt = from + Math.floor(random() * (to - from));
  const startedAt = endedAt - Math.floor(random() * 60_000);
  const requestId = uuidMaker(() => startedAt)();
  const ending = random() < 0.05 ? pick(free) : pick(charged);
  const promptTokens = Math.floor(random() * 5_000);
  const tokens = {
    promptTokens,
    cachedTokens: Math.floor(random() * promptTokens),
    completionTokens: Math.floor(random() * 2_000),
    reasoningTokens: 0,
  };
  const tier = random() < 0.2 ? undefined : pick(['default', 'default', 'flex', 'priority', 'batch'] as const);
  const isLater = startedAt >= (from + to) / 2;
  const prices = isLater
    ? { input: 5_000_001n, output: 20_000_003n, cacheRead: 2_500_007n }
    : { input: 4_999_999n, output: 19_999_997n, cacheRead: 1_250_001n };
  const list = costMicrocents(tokens, prices);
  const cost = charged.includes(ending) ? list : 0n;
  const tags = pick(tagsOf);
  return {
    requestId,
    publicId: publicIdOf(requestId),
    clientId: null,
    accountId,
    keyId: pick(keys),
    modelId: pick(['glm', 'qwen', 'tiny']),
    api: 'chat',
    streamed: random() < 0.5,
    startedAt,
    endedAt,
    ...tokens,
    costMicrocents: cost,
    unchargedMicrocents: list - cost,
    holdMicrocents: list + 10n,
    ending,
    finish: ending === 'finished' ? 'stop' : null,
    errorCode: ending === 'failed' ? 'backend_http_error' : null,
    counted: false,
    inputPrice: prices.input,
    outputPrice: prices.output,
    cacheReadPrice: prices.cacheRead,
    backend: 'scripted',
    firstTokenMs: random() < 0.1 ? null : Math.floor(random() ** 4 * 20_000),
    totalMs: endedAt - startedAt,
    tags: tags.length === 0 ? null : JSON.stringify(tags),
    plan: null,
    keyBudget: null,
    accountBudget: null,
    zdr: random() < 0.1,
    ...(tier === undefined ? {} : { tier }),
    ...(tier === 'flex' && endedAt % 3 === 0 ? { priceMultiple: 5_000 } : {}),
  };
}

const rowsAtOnce = 500;

/** Writes rows and takes what they cost from their accounts, all or nothing at a time. */
export async function insertUsage(db: Kysely<Database>, rows: readonly UsageRow[]): Promise<void> {
  const columns = sql.join(['request_id', ...usageColumns].map((column) => sql.ref(column)));
  for (let at = 0; at < rows.length; at += rowsAtOnce) {
    const page = rows.slice(at, at + rowsAtOnce);
    const values = page.map((row) => sql`(${sql.join([row.requestId, ...usageValues(row)])})`);
    await db.transaction().execute(async (transaction) => {
      await sql`insert into usage (${columns}) values ${sql.join(values)}`.execute(transaction);
      for (const accountId of new Set(page.map((row) => row.accountId))) {
        const cost = page
          .filter((row) => row.accountId === accountId)
          .reduce((sum, row) => sum + row.costMicrocents, 0n);
        await transaction
          .updateTable('account')
          .set((is) => ({ available: is('available', '-', cost) }))
          .where('id', '=', accountId)
          .execute();
      }
    });
  }
}
