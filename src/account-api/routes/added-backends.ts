import Type from 'typebox';

import { operate } from '../../accounts/operations.ts';
import { ApiError } from '../../platform/errors.ts';
import { operationsOf } from '../operations-of.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { nullable, page, secondsOf, wholeListSchema } from '../wire.ts';

const model = Type.String({ minLength: 1, maxLength: 128 });
const source = Type.Optional(
  Type.String({
    minLength: 1,
    maxLength: 64,
    description:
      'Name of the entry of the configuration; needed where the model has several with `discover: { by: api }`.',
  }),
);
const url = Type.String({ minLength: 1, maxLength: 2000, description: 'With its version path.' });

const addedSchema = Type.Object({
  object: Type.Literal('added_backend'),
  model: Type.String(),
  source: Type.String(),
  url: Type.String(),
  rank: nullable(Type.Integer()),
  weight: nullable(Type.Number()),
});

/** The sources of backends that are not in the configuration, and backends that operators add to them. */
export const addedBackendRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/admin/backend_sources',
    operationId: 'listBackendSources',
    tag: 'Server',
    summary: 'List the sources of backends',
    description: 'Where backends come from that the configuration does not list, as this replica sees them.',
    access: 'operator',
    answers: [
      {
        status: 200,
        description: 'All sources.',
        schema: wholeListSchema(
          Type.Object({
            object: Type.Literal('backend_source'),
            model: Type.String(),
            name: Type.String(),
            by: Type.Enum(['dns', 'srv', 'kubernetes', 'file', 'api']),
            listed: Type.Integer({ description: 'Servers that it names.' }),
            in_use: Type.Integer({ description: 'Those of them that have answered and get requests.' }),
            problem: nullable(Type.String({ description: 'For the operator; null: all is well.' })),
            last_read_at: nullable(Type.Integer({ description: 'Unix seconds; null: it could not be read yet.' })),
          }),
        ),
      },
    ],
    handle: ({ services }) =>
      Promise.resolve(
        page(
          (services.sources?.() ?? []).map(({ model, source: name, by, listed, inUse, problem, lastReadAt }) => ({
            object: 'backend_source',
            ...{ model, name, by, listed, problem },
            in_use: inUse,
            last_read_at: lastReadAt === null ? null : secondsOf(lastReadAt),
          })),
        ),
      ),
  }),
  route({
    method: 'post',
    path: '/v1/admin/backends',
    operationId: 'addBackend',
    tag: 'Server',
    summary: 'Add a server to the backends of a model',
    description:
      'The model needs an entry with `discover: { by: api }`, which says what its servers have in common. All replicas take it over within seconds; it gets requests when it has answered one of ours. Sent again with the same URL, its rank and weight change.',
    access: 'operator',
    stepUp: true,
    body: Type.Object(
      {
        model,
        source,
        url,
        rank: Type.Optional(nullable(Type.Integer({ minimum: 1, maximum: 100 }))),
        weight: Type.Optional(nullable(Type.Number({ minimum: 0.01, maximum: 100 }))),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 201, description: 'The server.', schema: addedSchema }],
    handle: async (call) => {
      const { url: at, rank = null, weight = null } = call.body;
      const place = placeOf(call, call.body);
      const added = await operate({ kind: 'add_backend', ...place, url: at, rank, weight }, operationsOf(call));
      return { object: 'added_backend', ...place, url: added.url, rank, weight };
    },
  }),
  route({
    method: 'delete',
    path: '/v1/admin/backends',
    operationId: 'removeBackend',
    tag: 'Server',
    summary: 'Remove a server that was added',
    description: 'It gets no more requests; those that run there go on.',
    access: 'operator',
    stepUp: true,
    query: Type.Object({ model, source, url }),
    answers: [
      {
        status: 200,
        description: 'The server is removed.',
        schema: Type.Object({
          object: Type.Literal('added_backend.deleted'),
          model: Type.String(),
          source: Type.String(),
          url: Type.String(),
        }),
      },
    ],
    errors: ['http_404'],
    handle: async (call) => {
      const place = placeOf(call, call.query);
      const removed = await operate({ kind: 'remove_backend', ...place, url: call.query.url }, operationsOf(call));
      return { object: 'added_backend.deleted', ...place, url: removed.url };
    },
  }),
];

/** The entry of the configuration that a request names. */
function placeOf(
  { services }: Pick<Call, 'services'>,
  named: { readonly model: string; readonly source?: string | undefined },
): { readonly model: string; readonly source: string } {
  const found = services.config().models.find(({ id }) => id.toLowerCase() === named.model.toLowerCase());
  if (found === undefined)
    throw new ApiError('unsupported_value', 'The configuration has no model of this id.', { param: 'model' });
  const sources = found.sources.filter(({ discover }) => discover.by === 'api');
  if (sources.length === 0)
    throw new ApiError(
      'unsupported_value',
      'Servers cannot be added to this model: it has no backend with discover: { by: api } in the configuration.',
      { param: 'model' },
    );
  const meant = sources.filter(({ name }) => named.source === undefined || name === named.source);
  if (meant.length !== 1)
    throw new ApiError('unsupported_value', `Name the source: ${sources.map(({ name }) => name).join(', ')}.`, {
      param: 'source',
    });
  return { model: found.id, source: meant[0]!.name };
}
