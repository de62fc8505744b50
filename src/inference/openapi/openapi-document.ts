import Type from 'typebox';

import type { Capabilities } from '../../catalog/card-flags.ts';
import type { Model } from '../../catalog/model.ts';
import { warningHeader, warningTable } from '../../platform/warnings.ts';
import type { EndpointDescription, ErrorForm, Need } from '../dialects/description.ts';
import { self } from '../dialects/description.ts';
import { commonHeaders, errorResponses, errorSchema, headersOf, limitHeaders } from './errors.ts';
import { Components } from './json-schema.ts';
import type { Json, JsonObject } from './json-schema.ts';
import type { AnswerDescription, ParameterDescription, PlainOperation } from './operation.ts';

/** An endpoint of an API family, with what the service knows about it besides its dialect. */
export interface Endpoint {
  readonly path: string;
  readonly kind: 'generate' | 'count';
  readonly description: EndpointDescription;
  /** Returns the family's part of a model's card. */
  flags(capabilities: Capabilities): Readonly<Record<Need | 'supported', boolean>>;
}

export interface DocumentFacts {
  /** Version of the program. */
  readonly version: string;
  readonly endpoints: readonly Endpoint[];
  readonly operations: readonly PlainOperation[];
  /** Models that examples may name, best first. */
  readonly models: readonly Model[];
  /** The site with the pages about error codes. */
  readonly accountUrl: string;
  readonly bodyBytesMax: number;
}

/** The description of the inference host: an OpenAPI 3.1 document. */
export function openApiDocument(facts: DocumentFacts): JsonObject {
  const components = new Components();
  const responses = new Map<string, JsonObject>();
  components.add('ErrorBody', self(errorSchema));
  for (const { description } of facts.endpoints) {
    for (const [name, schema] of Object.entries(description.named)) components.add(name, schema);
  }
  for (const { named = {} } of facts.operations) {
    for (const [name, schema] of Object.entries(named)) components.add(name, schema);
  }
  const errors = new Map<string, Type.TObject>();
  for (const { name, schema } of [
    ...facts.endpoints.map(({ description }) => description.error),
    ...facts.operations.map(({ error }) => error),
  ]) {
    if (!errors.has(name)) errors.set(name, schema(errorSchema));
  }
  for (const [name, schema] of errors) components.add(name, self(schema));

  const shared: Shared = { components, responses, errors, facts };
  const paths: Record<string, JsonObject> = {};
  const put = (path: string, method: string, operation: JsonObject): void => {
    paths[path] = { ...paths[path], [method]: operation };
  };
  for (const endpoint of facts.endpoints) put(endpoint.path, 'post', endpointOperation(endpoint, shared));
  for (const operation of facts.operations) put(operation.path, operation.method, plainOperation(operation, shared));
  const tags = [
    ...new Set([...facts.endpoints.map(({ description: { tag } }) => tag), ...facts.operations.map(({ tag }) => tag)]),
  ];
  return {
    openapi: '3.1.1',
    info: {
      title: 'Tokenhouse inference API',
      version: facts.version,
      description: `Every route of the inference host. Routes that take GET also take HEAD. Answers gain fields over time: ignore fields that you do not know. Bodies must be smaller than ${facts.bodyBytesMax} bytes. Error codes: ${facts.accountUrl}/docs/errors`,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'The address that this document was read from.' }],
    security: eitherKey,
    tags: tags.map((name) => ({ name })),
    paths,
    components: {
      schemas: components.printAll(),
      responses: Object.fromEntries([...responses].toSorted(([a], [b]) => (a < b ? -1 : 1))),
      headers: headerComponents,
      parameters: commonParameters,
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer', description: '`Authorization: Bearer <key>`' },
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: '`x-api-key: <key>`' },
      },
    },
  };
}

interface Shared {
  readonly components: Components;
  readonly responses: Map<string, JsonObject>;
  /** Error bodies, by the name of their form. */
  readonly errors: ReadonlyMap<string, Type.TObject>;
  readonly facts: DocumentFacts;
}

const eitherKey: readonly Json[] = [{ bearer: [] }, { apiKey: [] }];

const headerComponents: JsonObject = {
  'cache-control': { description: 'Always `no-cache`.', schema: { type: 'string' } },
  vary: {
    description: '`origin`: for pages of allowed origins, CORS headers allow them to read the answer and its headers.',
    schema: { type: 'string' },
  },
  'x-request-id': {
    description: 'Id of the request: the one that the client sent, or a new one.',
    schema: { type: 'string' },
  },
  'request-id': { description: 'The same as `x-request-id`.', schema: { type: 'string' } },
  'ratelimit-limit': {
    description:
      'The cap of the limit that is nearest to being used up, among all limits of the account and the key. Absent when no limit is set.',
    schema: { type: 'integer' },
  },
  'ratelimit-remaining': { description: 'What is left of that limit.', schema: { type: 'integer' } },
  'ratelimit-reset': { description: 'Seconds until that limit renews.', schema: { type: 'integer' } },
};

const streamHeaders = { 'X-Accel-Buffering': 'On streams: `no`, so that proxies forward each event at once.' };

const commonParameters: JsonObject = {
  'x-request-id': {
    name: 'x-request-id',
    in: 'header',
    description:
      'Id of the request, for the answer, the log and the ledger. The form `req_<12 hex>` is echoed as it is, any other text with the prefix `client_`.',
    schema: { type: 'string' },
  },
  'service-zdr': {
    name: 'Service-ZDR',
    in: 'header',
    description: 'Zero data retention: only backends that retain nothing see the request.',
    schema: { type: 'string', enum: ['required'] },
  },
  'idempotency-key': {
    name: 'Idempotency-Key',
    in: 'header',
    description:
      'A text of your choice for this request, unique in the account, for example a UUID. When the request is sent again within 24 hours with the same key and body, it is not generated or charged again: the answer is the first one, with `idempotent-replayed: true`.',
    schema: { type: 'string', minLength: 1, maxLength: 255, pattern: '^[!-~]+$' },
  },
  'service-request-tag': {
    name: 'Service-Request-Tag',
    in: 'header',
    description:
      'Labels of usage, at most eight, separated by commas: for models that are dedicated to an account. Ignored elsewhere.',
    schema: { type: 'string', example: 'nightly,search' },
  },
};

/** What was left out of a request, which is answered all the same. */
const warningHeaders: JsonObject = {
  'x-tokenhouse-warning': {
    description: `What the request asked for and did not get, as a list (RFC 9651) of these codes, each with its \`text\`. ${Object.entries(
      warningTable,
    )
      .map(([code, text]) => `\`${code}\`: ${text}`)
      .join(' ')}`,
    schema: { type: 'string', example: warningHeader(['images_removed']) },
  },
};

/** Headers of answers to requests that generate. */
const generateHeaders: JsonObject = {
  'idempotent-replayed': {
    description:
      'The answer belongs to an earlier request with the same `Idempotency-Key`; `x-request-id` is the id of that request.',
    schema: { type: 'string', enum: ['true'] },
  },
  'service-fallback-from': {
    description:
      'The model that was asked for, where another one has served: the body names that one, and it is charged at its prices.',
    schema: { type: 'string' },
  },
};

const commonParameter = (name: keyof typeof commonParameters): JsonObject => ({
  $ref: `#/components/parameters/${name}`,
});

function endpointOperation({ kind, description, flags }: Endpoint, shared: Shared): JsonObject {
  const { components, errors, facts } = shared;
  const { events } = description;
  const error = errors.get(description.error.name) ?? errorSchema;
  return {
    operationId: description.operationId,
    tags: [description.tag],
    summary: description.summary,
    description: description.description,
    parameters: [
      commonParameter('x-request-id'),
      commonParameter('service-zdr'),
      commonParameter('service-request-tag'),
      ...(kind === 'generate' ? [commonParameter('idempotency-key')] : []),
      ...(description.headers ?? []).map((header) => printParameter({ ...header, in: 'header' }, components)),
    ],
    requestBody: {
      required: true,
      content: {
        'application/json': {
          schema: components.print(description.request),
          examples: Object.fromEntries(
            description.examples.flatMap(({ name, summary, needs, body }) => {
              const model = modelWith(facts.models, flags, needs);
              return model === undefined ? [] : [[name, { summary, value: body(model.id) as JsonObject }]];
            }),
          ),
        },
      },
    },
    responses: {
      '200': {
        description: events === undefined ? 'The answer.' : `The answer. ${events.description}`,
        headers: {
          ...commonHeaders(kind),
          ...limitHeaders,
          ...(events === undefined ? {} : headersOf(streamHeaders)),
          ...(kind === 'generate' ? generateHeaders : {}),
          ...warningHeaders,
        },
        content: {
          'application/json': { schema: components.print(description.answer) },
          ...(events === undefined ? {} : { 'text/event-stream': streamOf(components.print(events.schema(error))) }),
        },
      },
      ...errorsOf(kind, description.error, shared),
    },
  };
}

/**
 * In OpenAPI 3.1 a schema describes a whole body, and a stream of events is a text; only 3.2 has a keyword for the schema of each event,
 * `itemSchema`. So that schema is an extension alongside: its parts are components, for which generators make types.
 */
const streamOf = (event: JsonObject): JsonObject => ({
  schema: {
    type: 'string',
    contentMediaType: 'text/event-stream',
    description: 'Server-sent events. The value of `data:` is JSON, described by `x-item-schema` beside this schema.',
  },
  'x-item-schema': event,
});

/** The first model that supports a request with these needs. */
const modelWith = (models: readonly Model[], flags: Endpoint['flags'], needs: readonly Need[]): Model | undefined =>
  models.find(({ capabilities }) => {
    const has = flags(capabilities);
    return has.supported && needs.every((need) => has[need]);
  });

function plainOperation(operation: PlainOperation, shared: Shared): JsonObject {
  const { components } = shared;
  const { body, answers } = operation;
  return {
    operationId: operation.operationId,
    tags: [operation.tag],
    summary: operation.summary,
    description: operation.description,
    ...(operation.key === 'required' ? {} : { security: operation.key === 'unused' ? [] : [{}, ...eitherKey] }),
    parameters: [
      commonParameter('x-request-id'),
      ...(operation.parameters ?? []).map((parameter) => printParameter(parameter, components)),
    ],
    ...(body === undefined
      ? {}
      : {
          requestBody: { required: true, content: { [body.contentType]: { schema: components.print(body.schema) } } },
        }),
    responses: {
      ...errorsOf(operation.exposure, operation.error, shared),
      ...Object.fromEntries(
        answers.map((answer) => [String(answer.status), printAnswer(answer, operation, components)]),
      ),
    },
  };
}

const errorsOf = (exposure: Parameters<typeof errorResponses>[0], form: ErrorForm, shared: Shared): JsonObject =>
  errorResponses(exposure, form, shared.facts.accountUrl, shared.responses);

const printParameter = (
  { name, in: place, description, schema }: ParameterDescription,
  components: Components,
): JsonObject => ({
  name,
  in: place,
  description,
  ...(place === 'path' ? { required: true } : {}),
  schema: components.print(schema),
});

function printAnswer(answer: AnswerDescription, { exposure, key }: PlainOperation, components: Components): JsonObject {
  const { description, contentType, schema = Type.Unknown(), headers = {} } = answer;
  return {
    description,
    headers: { ...commonHeaders(exposure), ...(key === 'required' ? limitHeaders : {}), ...headersOf(headers) },
    ...(contentType === undefined ? {} : { content: { [contentType]: { schema: components.print(schema) } } }),
  };
}
