import type { GenerationFilter } from '../store/repositories/generations.ts';
import type { UsageRow } from '../store/ledger.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { UsageCursor } from '../store/repositories/usage-rows.ts';
import type { Refund } from '../store/reports/reports.ts';
import { localText } from '../platform/calendar/time-zone.ts';
import type { Columns, Exported } from './columns.ts';
import { refundedOf, requestRow } from './generation-object.ts';

export const generationColumns = {
  id: 'text',
  request_id: 'text',
  client_request_id: 'text',
  started_at_utc: 'time',
  ended_at_utc: 'time',
  ended_at_local: 'text',
  model: 'text',
  fallback_from: 'text',
  api_type: 'text',
  streamed: 'flag',
  key_id: 'text',
  tags: 'list',
  ending: 'text',
  finish_reason: 'text',
  error_code: 'text',
  tokens_prompt: 'sum',
  tokens_cached: 'sum',
  tokens_completion: 'sum',
  tokens_reasoning: 'sum',
  input_microcents_per_million: 'number',
  cached_microcents_per_million: 'number',
  output_microcents_per_million: 'number',
  cost_microcents: 'sum',
  uncharged_microcents: 'sum',
  refunded_microcents: 'sum',
  latency_ms: 'number',
  total_ms: 'number',
  zdr: 'flag',
  service_tier: 'text',
  price_multiple: 'fraction',
} as const satisfies Columns;

function exportedGeneration(
  row: UsageRow,
  refunds: readonly Refund[],
  timeZone: string,
): Readonly<Record<keyof typeof generationColumns, Exported[string]>> {
  return {
    ...requestRow(row),
    started_at_utc: new Date(row.startedAt).toISOString(),
    ended_at_utc: new Date(row.endedAt).toISOString(),
    ended_at_local: localText(timeZone, row.endedAt),
    input_microcents_per_million: row.inputPrice,
    cached_microcents_per_million: row.cacheReadPrice,
    output_microcents_per_million: row.outputPrice,
    cost_microcents: row.costMicrocents,
    uncharged_microcents: row.unchargedMicrocents,
    refunded_microcents: refundedOf(row, refunds),
  };
}

const rowsAtOnce = 500;

/** All requests that match a filter, newest first, page by page on demand. */
export async function* exportedGenerations(
  repositories: Pick<Repositories, 'listGenerations' | 'refundsOf'>,
  filter: GenerationFilter,
  timeZone: string,
): AsyncGenerator<readonly Exported[]> {
  const { accountId } = filter;
  for (let before: UsageCursor | undefined; ;) {
    const page = await repositories.listGenerations({
      ...filter,
      ...(before === undefined ? {} : { before }),
      limit: rowsAtOnce,
    });
    const refunds = new Map<string, Refund[]>();
    const requestIds = page.rows.map(({ requestId }) => requestId);
    for (const refund of await repositories.refundsOf({ accountId, requestIds })) {
      const id = hexOf(refund.requestId);
      refunds.set(id, [...(refunds.get(id) ?? []), refund]);
    }
    yield page.rows.map((row) => exportedGeneration(row, refunds.get(hexOf(row.requestId)) ?? [], timeZone));
    if (page.next === undefined) return;
    before = page.next;
  }
}

const hexOf = (id: Uint8Array): string => Buffer.from(id).toString('hex');
