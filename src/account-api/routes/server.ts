import Type from 'typebox';

import { route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { nullable } from '../wire.ts';

/** What people have to know about the server so that their programs can use it. */
export const serverRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/server',
    operationId: 'getServer',
    tag: 'Server',
    summary: 'Get the server',
    description: 'Where models are called, and how this server takes payments.',
    access: 'user',
    answers: [
      {
        status: 200,
        description: 'The server.',
        schema: Type.Object({
          object: Type.Literal('server'),
          inference_url: nullable(
            Type.String({ description: 'Address of the inference host, without `/v1`; null: not known yet.' }),
          ),
          account_url: Type.String({ description: 'Address of this host.' }),
          payments: nullable(Type.Enum(['demo', 'stripe'], { description: 'null: this server takes no payments.' })),
        }),
      },
    ],
    handle: ({ services, headers }) =>
      Promise.resolve({
        object: 'server',
        inference_url: services.inferenceUrl?.(headers.host) ?? null,
        account_url: services.accountUrl(),
        payments: services.payments === undefined ? null : services.demo === undefined ? 'stripe' : 'demo',
      }),
  }),
];
