import Type from 'typebox';

import { errorTable } from '../../platform/errors.ts';
import type { ErrorCode } from '../../platform/errors.ts';
import { parseUuid, uuidText } from '../../platform/ids/uuid.ts';
import type { RefusedRequest } from '../../store/repositories/refusals.ts';
import { askedBuckets, filterOf, reportQuery } from '../report-request.ts';
import { everyRole, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { visibleUsage } from '../visible-usage.ts';
import { listOf, listSchema, nullable, pageLimit, pageQuery, secondsOf } from '../wire.ts';
import { bucketPage, bucketPageSchema, readable } from './usage.ts';

const errorCode = Type.Optional(
  Type.String({ minLength: 1, maxLength: 64, description: 'Only requests that ended with this error.' }),
);

const refusedSchema = Type.Object({
  object: Type.Literal('refused_request'),
  id: Type.String(),
  request_id: Type.String({ description: '`x-request-id` of the answer.' }),
  client_request_id: nullable(Type.String({ description: 'The `x-request-id` that the client sent.' })),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
  key_id: Type.String(),
  model: nullable(Type.String({ description: 'null: it named no model, or none that this account can use.' })),
  error_code: Type.String(),
  status: Type.Integer({ description: 'Of the HTTP answer.' }),
  message: nullable(
    Type.String({
      description:
        'As it was sent. null: it may quote the request, of which nothing is kept, or zero data retention was required.',
    }),
  ),
  meaning: Type.String({ description: 'What the error means, as its page says it.' }),
  remedy: Type.String({ description: 'What the caller can do about it.' }),
});

export function refusedObject(row: RefusedRequest) {
  const { status, meaning, remedy } = errorTable[row.code as ErrorCode];
  return {
    object: 'refused_request' as const,
    id: uuidText(row.requestId),
    request_id: row.publicId,
    client_request_id: row.clientId,
    created_at: secondsOf(row.at),
    key_id: row.keyId,
    model: row.model,
    error_code: row.code,
    status,
    message: row.message,
    meaning,
    remedy,
  };
}

// Refused requests have neither label, tier nor ending.
const { tag: _, service_tier: _tier, ending: _ending, group_by: __, ...reportFields } = reportQuery.properties;
const errorGroups = ['model', 'api_key_id', 'user_id', 'error_code'] as const;
const dimensions = { model: 'model', api_key_id: 'key', user_id: 'user', error_code: 'code' } as const;

export const errorRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/refusals',
    operationId: 'listRefusals',
    tag: 'Usage',
    summary: 'List refused requests',
    description:
      'The last hundred requests of the account that were refused before anything was charged, newest first, a few seconds after their answers. Nothing of their content is kept. Developers and viewers see those of their own keys.',
    access: everyRole,
    query: Type.Object({
      ...pageQuery,
      id: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 200,
          description: 'Only with this id: of the answer, or the one that the client sent.',
        }),
      ),
      model: reportQuery.properties.model,
      api_key_id: reportQuery.properties.api_key_id,
      error_code: errorCode,
    }),
    answers: [{ status: 200, description: 'A page of requests.', schema: listSchema(refusedSchema) }],
    handle: async (call) => {
      const { account, query, services } = call;
      const limit = pageLimit(query.limit);
      const rows = await services.operations.repositories.listRefused({
        accountId: account.id,
        id: query.id,
        keyId: query.api_key_id,
        model: query.model,
        code: query.error_code,
        before: query.after === undefined ? undefined : parseUuid(query.after),
        limit: limit + 1,
        ...visibleUsage(call),
      });
      return listOf(rows, limit, refusedObject, ({ requestId }) => uuidText(requestId));
    },
  }),
  route({
    method: 'get',
    path: '/v1/errors',
    operationId: 'getErrors',
    tag: 'Usage',
    summary: 'Count errors over time',
    description:
      'Requests that were refused, and requests that failed, in the buckets of the other reports. Refused requests are not among those that `/v1/usage` counts; failed ones are. Older than two days they are counted by the hour in which they came, and so are those of an hour with very many kinds; older than three months not at all. Developers and viewers see the sums of the whole account, and those by key or person of their own keys.',
    access: everyRole,
    query: Type.Object({
      ...reportFields,
      error_code: errorCode,
      group_by: Type.Optional(
        Type.Array(Type.Enum([...errorGroups]), { maxItems: 4, description: 'One result per group.' }),
      ),
    }),
    answers: [
      {
        status: 200,
        description: 'A page of buckets.',
        schema: bucketPageSchema({
          num_refused_requests: Type.Integer(),
          num_failed_requests: Type.Integer(),
          model: nullable(Type.String()),
          api_key_id: nullable(Type.String()),
          user_id: nullable(Type.String()),
          error_code: nullable(Type.String()),
        }),
      },
    ],
    handle: async (call) => {
      const by = (call.query.group_by ?? []).map((name) => dimensions[name]);
      const asked = { ...filterOf(call, by), ...(await askedBuckets(call)), by, code: call.query.error_code };
      const rows = await readable(call.services.operations.repositories.sumErrors(asked));
      return bucketPage(asked, rows, (row) => ({
        num_refused_requests: row.refusals,
        num_failed_requests: row.failures,
        model: row.model,
        api_key_id: row.key,
        user_id: row.user,
        error_code: row.code,
      }));
    },
  }),
];
