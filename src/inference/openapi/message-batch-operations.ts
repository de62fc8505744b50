import Type from 'typebox';

import { messagesDescription } from '../dialects/messages/description.ts';
import { self } from '../dialects/description.ts';
import type { ParameterDescription, PlainOperation } from './operation.ts';

const text = (description: string) => Type.String({ description });
const textOrNull = (description: string) => Type.Union([Type.String(), Type.Null()], { description });
const time = (description: string) => Type.String({ format: 'date-time', description });
const timeOrNull = (description: string) =>
  Type.Union([Type.String({ format: 'date-time' }), Type.Null()], { description });
const count = (description: string) => Type.Integer({ minimum: 0, description });

const newBatch = Type.Object(
  {
    requests: Type.Array(
      Type.Object({
        custom_id: Type.String({
          pattern: '^[a-zA-Z0-9_-]{1,64}$',
          description: 'Your name of the request, which no other has.',
        }),
        params: Type.Object({}, { additionalProperties: true, description: 'The body of a request without `stream`.' }),
      }),
      { minItems: 1, description: 'What to run.' },
    ),
  },
  { description: 'A batch of requests to run.' },
);

const batch = Type.Object(
  {
    id: text('`msgbatch_…`'),
    type: Type.Literal('message_batch', { description: 'Always `message_batch`.' }),
    processing_status: Type.Enum(['in_progress', 'canceling', 'ended'], { description: 'Where it is.' }),
    request_counts: Type.Object(
      {
        processing: count('Neither answered nor ended yet.'),
        succeeded: count('Answered.'),
        errored: count('Refused, or failed at the backend.'),
        canceled: count('Not run when the batch was cancelled.'),
        expired: count('Not run when its time was over.'),
      },
      { description: 'Its requests; the sum never changes.' },
    ),
    ended_at: timeOrNull('When the last request had ended.'),
    created_at: time('When it was made.'),
    expires_at: time('When it ends at the latest.'),
    archived_at: timeOrNull('When its results were deleted.'),
    cancel_initiated_at: timeOrNull('When it was cancelled.'),
    results_url: textOrNull('The address of its results, when it has ended.'),
  },
  { description: 'A batch of messages.' },
);

const batchList = Type.Object(
  {
    data: Type.Array(batch, { description: 'The batches.' }),
    has_more: Type.Boolean({ description: 'Whether another page follows.' }),
    first_id: textOrNull('Id of the first batch.'),
    last_id: textOrNull('Id of the last batch.'),
  },
  { description: 'A page of batches.' },
);

const deleted = Type.Object(
  {
    id: text('`msgbatch_…`'),
    type: Type.Literal('message_batch_deleted', { description: 'Always `message_batch_deleted`.' }),
  },
  { description: 'The batch is deleted.' },
);

const batchId: ParameterDescription = {
  name: 'message_batch_id',
  in: 'path',
  description: 'Id of a batch of the account.',
  schema: Type.String(),
};
const query = (name: string, description: string, schema: Type.TSchema = Type.String()): ParameterDescription => ({
  name,
  in: 'query',
  description,
  schema,
});

const path = '/v1/messages/batches';
const json = 'application/json';
const common = { tag: 'Batches', key: 'required', error: messagesDescription.error, exposure: 'files' } as const;
const answers = [{ status: 200, description: 'The batch.', contentType: json, schema: batch }];

/** Batches of the messages API (docs/decisions/057-batches.md). */
export const messageBatchOperations: readonly PlainOperation[] = [
  {
    ...common,
    path,
    method: 'post',
    operationId: 'createMessageBatch',
    summary: 'Run a batch of messages',
    description:
      'Each request has its own charge, at the price of the tier `batch`. One that cannot run ends as `errored`; the others run. Needs a key that belongs to a user. Not available with zero data retention.',
    exposure: 'upload',
    body: { contentType: json, schema: newBatch },
    answers,
    named: {
      NewMessageBatch: self(newBatch),
      MessageBatch: self(batch),
      MessageBatchList: self(batchList),
      MessageBatchDeleted: self(deleted),
    },
  },
  {
    ...common,
    path,
    method: 'get',
    operationId: 'listMessageBatches',
    summary: 'List batches of messages',
    description: 'Batches of the account, newest first.',
    parameters: [
      query('limit', 'Maximum of batches per page; when absent 20.', Type.Integer({ minimum: 1, maximum: 1_000 })),
      query('after_id', 'Id of the batch after which the page starts.'),
      query('before_id', 'Id of the batch before which the page ends.'),
    ],
    answers: [{ status: 200, description: 'The batches.', contentType: json, schema: batchList }],
  },
  {
    ...common,
    path: `${path}/{message_batch_id}`,
    method: 'get',
    operationId: 'getMessageBatch',
    summary: 'Get a batch of messages',
    description: 'Its state and counts.',
    parameters: [batchId],
    answers,
  },
  {
    ...common,
    path: `${path}/{message_batch_id}/cancel`,
    method: 'post',
    operationId: 'cancelMessageBatch',
    summary: 'Cancel a batch of messages',
    description: 'Running requests stop and cost nothing. What ended before is charged and delivered.',
    parameters: [batchId],
    answers,
  },
  {
    ...common,
    path: `${path}/{message_batch_id}/results`,
    method: 'get',
    operationId: 'getMessageBatchResults',
    summary: 'Get the results of a batch of messages',
    description:
      'A line of JSON for each request, in their order: `custom_id`, and `result` with its `type` (`succeeded`, `errored`, `canceled`, `expired`) and the `message` or the `error`. Kept for 29 days.',
    parameters: [batchId],
    answers: [{ status: 200, description: 'The results.', contentType: 'application/x-jsonl', schema: Type.Unknown() }],
  },
  {
    ...common,
    path: `${path}/{message_batch_id}`,
    method: 'delete',
    operationId: 'deleteMessageBatch',
    summary: 'Delete a batch of messages',
    description: 'Deletes a batch that has ended, and its results. Receipts stay.',
    parameters: [batchId],
    answers: [{ status: 200, description: 'It is deleted.', contentType: json, schema: deleted }],
  },
];
