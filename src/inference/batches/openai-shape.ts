import { ApiError } from '../../platform/errors.ts';
import { batchIdOf } from '../../platform/ids/batch-id.ts';
import type { LineResult } from '../../store/repositories/batch-lines.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';

/** Batches as clients of the OpenAI interface see them: `/v1/batches`, and the lines of their files. */
export const openAiBatches = {
  object: (row: BatchRow): object => {
    const { status, endedAt } = row;
    const isEnded = endedAt !== null;
    const at = (ended: BatchRow['status']): number | null => (status === ended ? seconds(endedAt) : null);
    return {
      id: batchIdOf(row),
      object: 'batch',
      endpoint: row.endpoint,
      model: row.models?.length === 1 ? row.models[0] : null,
      errors: row.faults === null ? null : { object: 'list', data: row.faults },
      input_file_id: fileId(row.inputFileId),
      completion_window: '24h',
      status,
      output_file_id: isEnded ? fileId(row.outputFileId) : null,
      error_file_id: isEnded ? fileId(row.errorFileId) : null,
      created_at: seconds(row.createdAt),
      in_progress_at: seconds(row.inProgressAt),
      expires_at: seconds(row.expiresAt),
      finalizing_at: seconds(row.finalizingAt),
      completed_at: at('completed'),
      failed_at: at('failed'),
      expired_at: at('expired'),
      cancelling_at: seconds(row.cancellingAt),
      cancelled_at: at('cancelled'),
      request_counts: {
        total: row.requests,
        completed: row.completed,
        failed: row.errored + row.cancelled + row.expired,
      },
      metadata: row.metadata,
    };
  },
  list: (batches: readonly BatchRow[], hasMore: boolean): object => ({
    object: 'list',
    data: batches.map(openAiBatches.object),
    first_id: batches[0] === undefined ? null : batchIdOf(batches[0]),
    last_id: batches.length === 0 ? null : batchIdOf(batches.at(-1)!),
    has_more: hasMore,
  }),
  customIdOf: (line: Readonly<Record<string, unknown>>, endpoint: string): string => {
    const { custom_id: customId, method, url, body } = line;
    if (typeof customId !== 'string' || customId === '') throw wrong('custom_id', 'is required: a text.');
    if (customId.length > customIdLengthMax) throw wrong('custom_id', `has more than ${customIdLengthMax} characters.`);
    if (customId.includes('\0') || !customId.isWellFormed())
      throw wrong('custom_id', 'has a character that no text has: U+0000, or half of a surrogate pair.');
    if (method !== 'POST') throw wrong('method', 'must be POST.');
    if (url !== endpoint) throw wrong('url', `must be ${endpoint}, as in the batch.`);
    if (typeof body !== 'object' || body === null || Array.isArray(body))
      throw wrong('body', 'is required: the body of the request, a JSON object.');
    return customId;
  },
  /** A line of the output or error file. Results are JSON already, and printed as they are. */
  printResult: (
    { line, customId, state, result }: LineResult,
    { id }: BatchRow,
    unfinished: 'cancelled' | 'expired',
  ): string => {
    const hasEnded = state === 'completed' || state === 'errored';
    const error = hasEnded ? null : { code: `batch_${unfinished}`, message: messages[unfinished] };
    return (
      `{"id":"batch_req_${id}_${line}","custom_id":${JSON.stringify(customId)},` +
      `"response":${hasEnded ? (result ?? 'null') : 'null'},"error":${JSON.stringify(error)}}`
    );
  },
};

const customIdLengthMax = 512;
const wrong = (param: string, message: string): ApiError =>
  new ApiError('schema_validation_failed', `'${param}' ${message}`, { param });

const messages = {
  cancelled: 'The batch was cancelled before this line ran. Nothing is charged for it.',
  expired: 'The completion window of the batch ended before this line ran. Nothing is charged for it.',
} as const;

const seconds = (ms: number | null): number | null => (ms === null ? null : Math.floor(ms / 1000));
const fileId = (id: string | null): string | null => (id === null ? null : `file-${id}`);
