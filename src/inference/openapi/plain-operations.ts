import Type from 'typebox';

import { cardSchema, modelListSchema } from '../../catalog/card-schema.ts';
import { plainError, self } from '../dialects/description.ts';
import { batchOperations } from './batch-operations.ts';
import { fileOperations } from './file-operations.ts';
import { messageBatchOperations } from './message-batch-operations.ts';
import type { PlainOperation } from './operation.ts';

const status = (value: string) => Type.Object({ status: Type.Literal(value, { description: `Always \`${value}\`.` }) });
const health = { tag: 'Service', key: 'unused', exposure: 'open', error: plainError } as const;

/** The operations of the inference host outside the API families. */
export const plainOperations: readonly PlainOperation[] = [
  {
    path: '/v1/models',
    method: 'get',
    operationId: 'listModels',
    tag: 'Models',
    summary: 'List models',
    description:
      'The catalog: limits, capabilities and prices of every model that the key can use. Without a key, all models at list prices. Queries are ignored: the list is always whole.',
    key: 'optional',
    exposure: 'models',
    error: plainError,
    answers: [{ status: 200, description: 'The models.', contentType: 'application/json', schema: modelListSchema }],
    named: { ModelList: self(modelListSchema), Model: self(cardSchema) },
  },
  ...fileOperations,
  ...batchOperations,
  ...messageBatchOperations,
  {
    ...health,
    path: '/healthz',
    method: 'get',
    operationId: 'getHealth',
    summary: 'Liveness',
    description: 'Answers as long as the process is running.',
    answers: [{ status: 200, description: 'It is.', contentType: 'application/json', schema: status('ok') }],
  },
  {
    ...health,
    path: '/readyz',
    method: 'get',
    operationId: 'getReadiness',
    summary: 'Readiness',
    description: 'For load balancers. The account host answers the same at this path.',
    answers: [
      { status: 200, description: 'It does.', contentType: 'application/json', schema: status('ready') },
      {
        status: 503,
        description: 'The service is stopping, or cannot reach its database.',
        contentType: 'application/json',
        schema: status('not ready'),
        headers: { 'Retry-After': 'Seconds until a retry makes sense.' },
      },
    ],
  },
  {
    ...health,
    path: '/openapi.json',
    method: 'get',
    operationId: 'getApiDescription',
    summary: 'This document',
    description: 'Printed from the schemas that requests are checked with. It changes with the configuration.',
    parameters: [
      {
        name: 'if-none-match',
        in: 'header',
        description: 'The `ETag` of the client’s copy.',
        schema: Type.String(),
      },
    ],
    answers: [
      {
        status: 200,
        description: 'An OpenAPI 3.1 document.',
        contentType: 'application/json',
        schema: Type.Object({ openapi: Type.String({ description: 'Version of OpenAPI.' }) }),
        headers: { ETag: '`ETag` of the document.' },
      },
      { status: 304, description: 'The client’s copy is current.', headers: { ETag: '`ETag` of the document.' } },
    ],
  },
];
