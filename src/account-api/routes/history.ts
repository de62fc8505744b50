import Type from 'typebox';

import { historySpans } from '../../store/history-steps.ts';
import type { HistorySpan } from '../../store/history-steps.ts';
import { historyGroups, historyOf } from '../history-object.ts';
import { filterQuery } from '../report-request.ts';
import { route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { nullable, page, wholeListSchema } from '../wire.ts';

const count = (description?: string) => Type.Integer(description === undefined ? {} : { description });

const historySchema = Type.Object({
  object: Type.Literal('history'),
  start_time: count('Unix seconds.'),
  end_time: count('Unix seconds; the last step ends with the last minute that has ended.'),
  model: nullable(
    Type.String({
      description:
        'null: all of them. `""`: refused before a model was found. `other`: beyond the twenty with the most requests.',
    }),
  ),
  backend: nullable(Type.String({ description: 'null: the models as a whole.' })),
  requests: count(),
  refused: count('Of the requests, those that were refused before anything was charged; 0 for backends.'),
  failed: count('Of the requests, those that failed; of a backend, by its own fault.'),
  prompt_tokens: count(),
  completion_tokens: count(),
  tokens_per_second: Type.Number({ description: 'Completion tokens of all requests, over the whole step.' }),
  answer_tokens_per_second: Type.Union([Type.Number(), Type.Null()], {
    description: 'Tokens that one answer gets in a second, from its first on; null: there was none.',
  }),
  first_token_p50_ms: nullable(
    count(
      'Half of the answers had their first content by then; of a backend, since it was called. null: there was none. Estimated within buckets, 60,000 at most.',
    ),
  ),
  first_token_p95_ms: nullable(count('The same for 95 in 100.')),
  waited: count('Requests that waited for a slot; 0 for backends.'),
  wait_mean_ms: nullable(count('null: none waited.')),
  wait_longest_ms: nullable(count('No request waited longer than that; the end of a bucket, 600,000 at most.')),
});

export const historyRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/admin/history',
    operationId: 'getHistory',
    tag: 'Server',
    summary: 'How the service did in the last hour, day or week',
    description:
      'Requests, errors, times to the first token, waits and tokens, by minute, quarter of an hour or hour: of all services on the database, by the figures of `/metrics`, up to the last minute that has ended. It begins where the data begin.',
    access: 'operator',
    query: Type.Object({
      span: Type.Optional(
        Type.Enum(Object.keys(historySpans) as HistorySpan[], {
          description: '`hour`: 60 minutes, `day`: 96 quarters of an hour, `week`: 168 hours.',
          default: 'hour',
        }),
      ),
      by: Type.Optional(
        Type.Enum([...historyGroups], {
          description:
            '`total`: every step is there. Otherwise a step has the models, or backends, with traffic in it.',
          default: 'total',
        }),
      ),
      model: filterQuery.model,
      backend: Type.Optional(
        Type.String({ minLength: 1, maxLength: 128, description: 'Only this backend, by its name.' }),
      ),
    }),
    answers: [{ status: 200, description: 'The steps, in their order.', schema: wholeListSchema(historySchema) }],
    handle: async ({ query, services }) => {
      const { repositories, now } = services.operations;
      const { span = 'hour', by = 'total', model, backend } = query;
      return page(await historyOf(repositories, { span, by, model, backend, now: now() }));
    },
  }),
];
