import Type from 'typebox';
import type { TObject, TSchema } from 'typebox';

import { plainError, self } from '../inference/dialects/description.ts';
import { commonHeaders, errorResponses, errorSchema, limitHeaders } from '../inference/openapi/errors.ts';
import { Components } from '../inference/openapi/json-schema.ts';
import type { Json, JsonObject } from '../inference/openapi/json-schema.ts';
import { sessionCookie } from '../accounts/users/cookies.ts';
import type { Access, AccountRoute } from './route.ts';

export interface DocumentFacts {
  /** Version of the program. */
  readonly version: string;
  readonly routes: readonly AccountRoute[];
  readonly accountUrl: string;
}

/** The description of the account host: an OpenAPI 3.1 document, from the schemas that check requests. */
export function accountDocument({ version, routes, accountUrl }: DocumentFacts): JsonObject {
  const components = new Components();
  const responses = new Map<string, JsonObject>();
  components.add('ErrorBody', self(errorSchema));
  const error = plainError.schema(errorSchema);
  components.add(plainError.name, self(error));
  const paths: Record<string, JsonObject> = {};
  for (const route of routes) {
    paths[route.path] = { ...paths[route.path], [route.method]: operation(route, components, responses, accountUrl) };
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'Tokenhouse account API',
      version,
      description: `Accounts, people, keys, credit, billing and usage. Programs send a management key; people have a session. Answers gain fields over time: ignore fields that you do not know. Unknown fields and parameters in requests are refused. Error codes: ${accountUrl}/docs/errors`,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'The address that this document was read from.' }],
    security: [{ managementKey: [] }, { session: [] }],
    tags: [...new Set(routes.map(({ tag }) => tag))].map((name) => ({ name })),
    paths,
    components: {
      schemas: components.printAll(),
      responses: Object.fromEntries([...responses].toSorted(([a], [b]) => (a < b ? -1 : 1))),
      headers: {
        'cache-control': { description: 'Always `no-store`.', schema: { type: 'string' } },
        'x-request-id': {
          description: 'Id of the request: the one that the client sent, or a new one.',
          schema: { type: 'string' },
        },
        'request-id': { description: 'The same as `x-request-id`.', schema: { type: 'string' } },
        'ratelimit-limit': {
          description: 'Requests that the sender may make per minute.',
          schema: { type: 'integer' },
        },
        'ratelimit-remaining': { description: 'Requests left in this minute.', schema: { type: 'integer' } },
        'ratelimit-reset': { description: 'Seconds until the next minute begins.', schema: { type: 'integer' } },
      },
      parameters: {
        'x-account-id': {
          name: 'x-account-id',
          in: 'header',
          description:
            'Id of the account, for people who belong to several. When absent: the account that they joined first.',
          schema: { type: 'string' },
        },
        'idempotency-key': {
          name: 'Idempotency-Key',
          in: 'header',
          description: 'A text of your choice. The same request with the same key takes effect once.',
          schema: { type: 'string', minLength: 1, maxLength: 255 },
        },
      },
      securitySchemes: {
        managementKey: { type: 'http', scheme: 'bearer', description: 'A management key.' },
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: sessionCookie(accountUrl),
          description: 'The session of a person.',
        },
      },
    },
  };
}

function operation(
  route: AccountRoute,
  components: Components,
  responses: Map<string, JsonObject>,
  accountUrl: string,
): JsonObject {
  const { body, answers, access } = route;
  const parameters: Json[] = [
    ...parametersOf(route.params, 'path', components),
    ...parametersOf(route.query, 'query', components),
    ...(typeof access === 'string' ? [] : [{ $ref: '#/components/parameters/x-account-id' }]),
    ...(route.method === 'post' ? [{ $ref: '#/components/parameters/idempotency-key' }] : []),
  ];
  return {
    operationId: route.operationId,
    tags: [route.tag],
    summary: route.summary,
    description: `${route.description}\n\n${accessText(access, route.stepUp === true)}`,
    ...(access === 'anyone' ? { security: [] } : {}),
    ...(access === 'user' ? { security: [{ session: [] }] } : {}),
    parameters,
    ...(body === undefined ? {} : { requestBody: requestBody(body, components) }),
    responses: {
      ...errorResponses('account', plainError, accountUrl, responses),
      ...Object.fromEntries(
        answers.map(({ status, description, schema, contentType }) => [
          String(status),
          {
            description,
            headers: { ...commonHeaders('account'), ...limitHeaders },
            ...(schema === undefined && contentType === undefined
              ? {}
              : {
                  content: {
                    [contentType ?? 'application/json']: {
                      schema: schema === undefined ? { type: 'string' } : components.print(schema),
                    },
                  },
                }),
          },
        ]),
      ),
    },
  };
}

const requestBody = (body: TSchema | 'raw', components: Components): JsonObject => ({
  required: true,
  content: {
    'application/json': { schema: body === 'raw' ? components.print(Type.Unknown()) : components.print(body) },
  },
});

function parametersOf(schema: TObject | undefined, place: 'path' | 'query', components: Components): JsonObject[] {
  if (schema === undefined) return [];
  const required = (schema as { readonly required?: readonly string[] }).required ?? [];
  return Object.entries(schema.properties as Readonly<Record<string, TSchema>>).map(([name, property]) => ({
    name,
    in: place,
    ...(typeof property === 'object' && 'description' in property
      ? { description: (property as { readonly description: string }).description }
      : {}),
    required: place === 'path' || required.includes(name),
    schema: components.print(property),
  }));
}

function accessText(access: Access, stepUp: boolean): string {
  const who =
    access === 'anyone'
      ? 'No credentials are needed.'
      : access === 'user'
        ? 'For people who are signed in.'
        : access === 'operator'
          ? 'For the operator of the server.'
          : `Roles: ${access.join(', ')}.`;
  return stepUp ? `${who} People must have signed in within the last 15 minutes.` : who;
}
