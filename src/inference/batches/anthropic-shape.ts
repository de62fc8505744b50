import { ApiError } from '../../platform/errors.ts';
import { batchIdOf } from '../../platform/ids/batch-id.ts';
import type { LineResult } from '../../store/repositories/batch-lines.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';

/** How long the results of a batch can be read. */
export const resultsKeptMs = 29 * 86_400_000;

/** Batches as clients of the Anthropic interface see them: `/v1/messages/batches`, and the lines of their results. */
export const anthropicBatches = {
  /** `base`: the address by which the client calls the service. */
  object: (row: BatchRow, base: string, now: number): object => {
    const { requests, completed, errored, cancelled, expired, endedAt } = row;
    const isEnded = hasEnded(row);
    const archivedAt = endedAt === null ? null : endedAt + (row.outputExpiresAfterMs ?? 0);
    const hasResults = isEnded && row.outputFileId !== null && now < archivedAt!;
    return {
      id: batchIdOf(row),
      type: 'message_batch',
      processing_status: isEnded ? 'ended' : row.cancellingAt === null ? 'in_progress' : 'canceling',
      request_counts: {
        processing: isEnded ? 0 : requests - completed - errored,
        succeeded: completed,
        errored,
        canceled: cancelled,
        expired,
      },
      ended_at: isEnded ? timeOf(endedAt) : null,
      created_at: timeOf(row.createdAt),
      expires_at: timeOf(row.expiresAt),
      archived_at: isEnded && now >= archivedAt! ? timeOf(archivedAt) : null,
      cancel_initiated_at: timeOf(row.cancellingAt),
      results_url: hasResults ? `${base}/v1/messages/batches/${batchIdOf(row)}/results` : null,
    };
  },
  list: (batches: readonly BatchRow[], hasMore: boolean, base: string, now: number): object => ({
    data: batches.map((row) => anthropicBatches.object(row, base, now)),
    has_more: hasMore,
    first_id: batches[0] === undefined ? null : batchIdOf(batches[0]),
    last_id: batches.length === 0 ? null : batchIdOf(batches.at(-1)!),
  }),
  deleted: (row: BatchRow): object => ({ id: batchIdOf(row), type: 'message_batch_deleted' }),
  /** A line of the results. What a line ended with is JSON already, and printed as it is. */
  printResult: (line: LineResult, _batch: BatchRow, unfinished: 'cancelled' | 'expired'): string =>
    `{"custom_id":${JSON.stringify(line.customId)},"result":${resultOf(line, unfinished)}}`,
  customIdOf: ({ custom_id: customId, params }: Readonly<Record<string, unknown>>): string => {
    if (typeof customId !== 'string' || !/^[a-zA-Z0-9_-]{1,64}$/.test(customId))
      throw wrong('custom_id', 'is required: 1 to 64 letters, digits, hyphens and underscores.');
    if (typeof params !== 'object' || params === null || Array.isArray(params))
      throw wrong('params', 'is required: the body of the request, a JSON object.');
    return customId;
  },
};

/** Its lines are gone too: it may be deleted. */
export const hasEnded = ({ endedAt, hasLines }: BatchRow): boolean => endedAt !== null && !hasLines;

function resultOf({ state, result }: LineResult, unfinished: 'cancelled' | 'expired'): string {
  if (state !== 'completed' && state !== 'errored')
    return `{"type":"${unfinished === 'cancelled' ? 'canceled' : 'expired'}"}`;
  const body = /^\{"status_code":\d+,"request_id":"[^"]*","body":(.*)\}$/s.exec(result ?? '')?.[1] ?? 'null';
  return state === 'completed' ? `{"type":"succeeded","message":${body}}` : `{"type":"errored","error":${body}}`;
}

const wrong = (param: string, message: string): ApiError =>
  new ApiError('schema_validation_failed', `'${param}' ${message}`, { param });
const timeOf = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());
