import Type from 'typebox';

import { plainError, self } from '../dialects/description.ts';
import type { ParameterDescription, PlainOperation } from './operation.ts';

const text = (description: string) => Type.String({ description });
const textOrNull = (description: string) => Type.Union([Type.String(), Type.Null()], { description });
const secondsOrNull = (description: string) =>
  Type.Union([Type.Integer(), Type.Null()], { description: `${description}, in seconds since 1970.` });
const count = (description: string) => Type.Integer({ minimum: 0, description });

const statuses = [
  ...['validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled'],
];

const metadata = Type.Object({}, { additionalProperties: Type.String() });

const newBatch = Type.Object(
  {
    input_file_id: text(
      'Id of a JSONL file with the purpose `batch`: `custom_id`, `method`, `url` and `body` in each line.',
    ),
    endpoint: text('The path that all lines are for, for example `/v1/chat/completions`.'),
    completion_window: Type.Literal('24h', { description: 'Always `24h`.' }),
    metadata: Type.Optional(
      Type.Union([metadata, Type.Null()], { description: 'At most 16 texts of your own, which the batch shows.' }),
    ),
    output_expires_after: Type.Optional(
      Type.Union(
        [
          Type.Object({
            anchor: Type.Literal('created_at', { description: 'Always `created_at`.' }),
            seconds: Type.Integer({ minimum: 3_600, maximum: 2_592_000, description: 'Seconds.' }),
          }),
          Type.Null(),
        ],
        { description: 'When the files of its results are deleted; when absent never.' },
      ),
    ),
  },
  { description: 'A batch to run.' },
);

const fault = Type.Object({
  code: text('What is wrong.'),
  message: text('The same in words.'),
  line: Type.Union([Type.Integer(), Type.Null()], { description: 'The line of the file, from 1.' }),
  param: textOrNull('The field of the line.'),
});

const batch = Type.Object(
  {
    id: text('`batch_…`'),
    object: Type.Literal('batch', { description: 'Always `batch`.' }),
    endpoint: text('The path that its lines are for.'),
    model: textOrNull('The model of all lines; null: several, or not known yet.'),
    errors: Type.Union(
      [
        Type.Object({
          object: Type.Literal('list', { description: 'Always `list`.' }),
          data: Type.Array(fault, { description: 'At most 100 faults.' }),
        }),
        Type.Null(),
      ],
      { description: 'Why the file was refused; nothing of it ran.' },
    ),
    input_file_id: textOrNull('Its file.'),
    completion_window: Type.Literal('24h', { description: 'Always `24h`.' }),
    status: Type.Enum(statuses, { description: 'Where it is.' }),
    output_file_id: textOrNull('The file of the answers, when it has ended.'),
    error_file_id: textOrNull('The file of the lines that failed, when it has ended.'),
    created_at: secondsOrNull('When it was made'),
    in_progress_at: secondsOrNull('When its file was found valid'),
    expires_at: secondsOrNull('When it ends at the latest'),
    finalizing_at: secondsOrNull('When its last line ended'),
    completed_at: secondsOrNull('When it was completed'),
    failed_at: secondsOrNull('When its file was refused'),
    expired_at: secondsOrNull('When it expired'),
    cancelling_at: secondsOrNull('When it was cancelled'),
    cancelled_at: secondsOrNull('When its results were there after that'),
    request_counts: Type.Object(
      { total: count('Lines.'), completed: count('Answered.'), failed: count('Failed, expired or cancelled.') },
      { description: 'Its lines.' },
    ),
    metadata: Type.Union([metadata, Type.Null()], { description: 'As it was sent.' }),
  },
  { description: 'A batch.' },
);

const batchList = Type.Object(
  {
    object: Type.Literal('list', { description: 'Always `list`.' }),
    data: Type.Array(batch, { description: 'The batches.' }),
    first_id: textOrNull('Id of the first batch.'),
    last_id: textOrNull('Id of the last batch.'),
    has_more: Type.Boolean({ description: 'Whether another page follows.' }),
  },
  { description: 'A page of batches.' },
);

const batchId: ParameterDescription = {
  name: 'batch_id',
  in: 'path',
  description: 'Id of a batch of the account.',
  schema: Type.String(),
};

const json = 'application/json';
const common = { tag: 'Batches', key: 'required', error: plainError } as const;
const answers = [{ status: 200, description: 'The batch.', contentType: json, schema: batch }];

/** `/v1/batches`: files of requests that run where nobody else waits (docs/decisions/057-batches.md). */
export const batchOperations: readonly PlainOperation[] = [
  {
    ...common,
    path: '/v1/batches',
    method: 'post',
    operationId: 'createBatch',
    summary: 'Run a batch',
    description:
      'Each line of the file is a request of its own, with its own charge, at the price of the tier `batch`. Needs a key that belongs to a user. Not available with zero data retention.',
    exposure: 'upload',
    body: { contentType: json, schema: newBatch },
    answers,
    named: { NewBatch: self(newBatch), Batch: self(batch), BatchList: self(batchList) },
  },
  {
    ...common,
    path: '/v1/batches',
    method: 'get',
    operationId: 'listBatches',
    summary: 'List batches',
    description: 'Batches of the account, newest first.',
    exposure: 'files',
    parameters: [
      {
        name: 'limit',
        in: 'query',
        description: 'Maximum of batches per page; when absent 20.',
        schema: Type.Integer({ minimum: 1, maximum: 100 }),
      },
      {
        name: 'after',
        in: 'query',
        description: 'Id of the batch after which the page starts.',
        schema: Type.String(),
      },
    ],
    answers: [{ status: 200, description: 'The batches.', contentType: json, schema: batchList }],
  },
  {
    ...common,
    path: '/v1/batches/{batch_id}',
    method: 'get',
    operationId: 'getBatch',
    summary: 'Get a batch',
    description: 'Its state, counts and files.',
    exposure: 'files',
    parameters: [batchId],
    answers,
  },
  {
    ...common,
    path: '/v1/batches/{batch_id}/cancel',
    method: 'post',
    operationId: 'cancelBatch',
    summary: 'Cancel a batch',
    description: 'Running lines stop and cost nothing. What ended before is charged and delivered.',
    exposure: 'files',
    parameters: [batchId],
    answers,
  },
];
