import Type from 'typebox';

import { notThere } from '../input.ts';
import { mailFields, mailObject, mailSchema } from '../mail-object.ts';
import { route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { listOf, listSchema } from '../wire.ts';

/** The outbox, for the operator. */
export const mailRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/admin/outbox',
    operationId: 'listOutbox',
    tag: 'Server',
    summary: 'List mail',
    description: 'Mail of the last seven days, newest first, without its text.',
    access: 'operator',
    query: Type.Object({
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
      after: Type.Optional(Type.String({ maxLength: 100 })),
      state: Type.Optional(Type.Enum(['waiting', 'sent', 'failed'])),
    }),
    answers: [
      {
        status: 200,
        description: 'A page of the outbox.',
        schema: listSchema(mailSchema),
      },
    ],
    handle: async ({ query: { limit = 20, after, state }, services }) => {
      const mails = await services.operations.repositories.listMail({ limit: limit + 1, after, state });
      return listOf(mails, limit, mailObject, ({ id }) => id);
    },
  }),
  route({
    method: 'get',
    path: '/v1/admin/outbox/{id}',
    operationId: 'getOutboxMail',
    tag: 'Server',
    summary: 'Read a mail',
    description: 'With its text, which is kept until the mail is sent or given up: links in it open accounts.',
    access: 'operator',
    stepUp: true,
    params: Type.Object({ id: Type.String({ pattern: '^mail_[0-9a-f]{32}$' }) }),
    answers: [
      {
        status: 200,
        description: 'The mail.',
        schema: Type.Object({ ...mailFields, text: Type.Union([Type.String(), Type.Null()]) }),
      },
    ],
    errors: ['http_404'],
    handle: async ({ params: { id }, services }) => {
      const mail = await services.operations.repositories.getMail({ id });
      if (mail === undefined) throw notThere();
      return { ...mailObject(mail), text: mail.body };
    },
  }),
];
