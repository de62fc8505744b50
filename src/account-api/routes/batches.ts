import Type from 'typebox';

import { attachment } from '../../inference/files/file-name.ts';
import { ApiError } from '../../platform/errors.ts';
import { batchIdOf, readBatchId } from '../../platform/ids/batch-id.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';
import { batchStatuses } from '../../store/schema/tables.ts';
import { notThere } from '../input.ts';
import { everyRole, mayMakeKeys, Reply, route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { visibleUsage } from '../visible-usage.ts';
import { listSchema, nullable, page, pageLimit, pageQuery, secondsOf, secondsOrNull, wholeOf } from '../wire.ts';

const batchSchema = Type.Object({
  object: Type.Literal('batch'),
  id: Type.String({ description: '`batch_…`, or `msgbatch_…` of the messages API.' }),
  endpoint: Type.String(),
  models: Type.Array(Type.String(), { description: 'Of its lines; empty until they are checked.' }),
  status: Type.Enum([...batchStatuses]),
  key_id: Type.String({ description: 'The key that pays.' }),
  requests: Type.Integer({ description: 'Lines.' }),
  completed: Type.Integer({ description: 'Lines with an answer.' }),
  failed: Type.Integer({ description: 'Lines that ended without one.' }),
  cost_microcents: Type.Integer({ description: 'The charges of its lines so far.' }),
  faults: Type.Array(
    Type.Object({ line: nullable(Type.Integer()), param: nullable(Type.String()), message: Type.String() }),
    { description: 'Why its file was refused.' },
  ),
  output_file_id: nullable(Type.String({ description: 'The file of the answers, at the inference host.' })),
  error_file_id: nullable(Type.String({ description: 'The file of the lines without an answer.' })),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
  expires_at: Type.Integer(),
  ended_at: nullable(Type.Integer()),
});

const about = 'Developers and viewers see those of their own keys.';
const tag = 'Usage';
const params = Type.Object({ id: Type.String({ pattern: '^(batch|msgbatch)_[0-9a-f]{32}$' }) });

/** Batches as the console shows them; programs make them at the inference host. */
export const batchRoutes: readonly AccountRoute[] = [
  route({
    tag,
    access: everyRole,
    method: 'get',
    path: '/v1/batch_runs',
    operationId: 'listAccountBatches',
    summary: 'List batches',
    description: `Batches of both interfaces, newest first. ${about}`,
    query: Type.Object(pageQuery, { additionalProperties: false }),
    answers: [{ status: 200, description: 'A page of batches.', schema: listSchema(batchSchema) }],
    handle: async (call) => {
      const { account, query, services } = call;
      const limit = pageLimit(query.limit);
      const after = query.after === undefined ? undefined : await found(call, query.after);
      const { batches, hasMore } = await services.operations.repositories.listBatches({
        ...{ accountId: account.id, limit, after },
        ...visibleUsage(call),
      });
      const shown = await Promise.all(batches.map((batch) => shownOf(call, batch)));
      return page(shown, hasMore ? shown.at(-1)?.id : undefined);
    },
  }),
  route({
    tag,
    access: mayMakeKeys,
    method: 'post',
    path: '/v1/batch_runs/{id}/cancel',
    operationId: 'cancelAccountBatch',
    summary: 'Cancel a batch',
    description: `Running lines stop within a second and cost nothing; what has ended is charged and delivered. ${about}`,
    params,
    answers: [{ status: 200, description: 'The batch.', schema: batchSchema }],
    handle: async (call) => {
      const { account, params: asked, services } = call;
      const { repositories, now } = services.operations;
      const batch = await found(call, asked.id);
      await call.audit({ action: 'batch.cancel', target: asked.id });
      const readsOn = batch.wire === 'anthropic';
      const cancelled = await repositories.cancelBatch({ accountId: account.id, id: batch.id, at: now(), readsOn });
      return await shownOf(call, cancelled ?? batch);
    },
  }),
  route({
    tag,
    // Who may make a key can read the file with it: nobody reads here what they could not read there.
    access: mayMakeKeys,
    method: 'get',
    path: '/v1/batch_runs/{id}/results',
    operationId: 'getAccountBatchResults',
    summary: 'Download the results of a batch',
    description: `The file that \`GET /v1/files/{id}/content\` sends at the inference host, until it is deleted. Developers download those of their own keys.`,
    params,
    query: Type.Object(
      {
        file: Type.Optional(
          Type.Enum(['output', 'error'], {
            default: 'output',
            description: '`error`: the lines without an answer; batches of the messages API have them in `output`.',
          }),
        ),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'A line of JSON for each request.', contentType: 'application/x-jsonl' }],
    errors: ['http_404'],
    handle: async (call) => {
      const { account, params: asked, query, services, signal } = call;
      const { outputFileId, errorFileId, endedAt } = await found(call, asked.id);
      const fileId = query.file === 'error' ? errorFileId : outputFileId;
      const file = fileId === null || endedAt === null ? undefined : await services.files?.find(account.id, fileId);
      const bytes = file === undefined ? undefined : await services.files?.read(file, signal);
      if (file === undefined || bytes === undefined)
        throw new ApiError('http_404', 'The batch has no such results yet, or they were deleted.');
      const headers = { 'content-length': String(file.bytes), 'content-disposition': attachment(file.name) };
      return new Reply(200, { ...headers, 'content-type': 'application/x-jsonl' }, bytes);
    },
  }),
];

/** One that the sender may see. */
async function found(call: Pick<Call, 'account' | 'principal' | 'services'>, name: string): Promise<BatchRow> {
  const { account, services } = call;
  const { repositories } = services.operations;
  const id = readBatchId(name, 'openai') ?? readBatchId(name, 'anthropic');
  const batch = id === undefined ? undefined : await repositories.getBatch({ accountId: account.id, id });
  if (batch === undefined || batchIdOf(batch) !== name) throw notThere();
  const { ownerId } = visibleUsage(call);
  if (
    ownerId !== undefined &&
    (await repositories.getKey({ keyId: batch.keyId, accountId: account.id }))?.userId !== ownerId
  )
    throw notThere();
  return batch;
}

async function shownOf({ account, services }: Pick<Call, 'account' | 'services'>, batch: BatchRow) {
  const { repositories } = services.operations;
  const { requests, completed, errored, cancelled, expired, endedAt, createdAt } = batch;
  const id = batchIdOf(batch);
  const cost = requests === 0 ? 0n : await repositories.batchCost({ accountId: account.id, name: id });
  const fileOf = (fileId: string | null): string | null =>
    fileId === null || endedAt === null ? null : `file-${fileId}`;
  return {
    object: 'batch' as const,
    id,
    endpoint: batch.endpoint,
    models: [...(batch.models ?? [])],
    // One of the messages API has all of its lines read first.
    status: batch.status === 'validating' && batch.cancellingAt !== null ? ('cancelling' as const) : batch.status,
    key_id: batch.keyId,
    requests,
    completed,
    failed: errored + cancelled + expired,
    cost_microcents: wholeOf(cost),
    faults: (batch.faults ?? []).map(({ line, param, message }) => ({ line, param, message })),
    output_file_id: fileOf(batch.outputFileId),
    error_file_id: fileOf(batch.errorFileId),
    created_at: secondsOf(createdAt),
    expires_at: secondsOf(batch.expiresAt),
    ended_at: secondsOrNull(endedAt),
  };
}
