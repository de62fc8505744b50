import Type from 'typebox';

import type { OutboxMail } from '../../store/repositories/mail.ts';
import { notThere } from '../input.ts';
import { route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { listOf, listSchema, secondsOf, secondsOrNull } from '../wire.ts';

const seconds = (description: string) => Type.Union([Type.Integer(), Type.Null()], { description });

const mailFields = {
  id: Type.String({ description: '`mail_…`' }),
  object: Type.Literal('mail'),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
  to: Type.String(),
  subject: Type.String(),
  kind: Type.String({ description: 'What it is about: `invitation`, `verification`, `low_balance`.' }),
  account_id: Type.Union([Type.String(), Type.Null()]),
  state: Type.Union([Type.Literal('waiting'), Type.Literal('sent'), Type.Literal('failed')], {
    description: '`waiting` for its next attempt, or, without `mail.smtp`, for whoever reads it here.',
  }),
  attempts: Type.Integer(),
  sent_at: seconds('Unix seconds; null: it was not sent.'),
  last_error: Type.Union([Type.String(), Type.Null()], { description: 'What the server said to the last attempt.' }),
};

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
    }),
    answers: [
      {
        status: 200,
        description: 'A page of the outbox.',
        schema: listSchema(Type.Object(mailFields)),
      },
    ],
    handle: async ({ query: { limit = 20, after }, services }) => {
      const mails = await services.operations.repositories.listMail({ limit: limit + 1, after });
      return listOf(mails, limit, wireOf, ({ id }) => id);
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
      return { ...wireOf(mail), text: mail.body };
    },
  }),
];

const wireOf = (mail: OutboxMail) => ({
  id: mail.id,
  object: 'mail' as const,
  created_at: secondsOf(mail.createdAt),
  to: mail.recipient,
  subject: mail.subject,
  kind: mail.kind,
  account_id: mail.accountId,
  state: mail.state,
  attempts: mail.attempts,
  sent_at: secondsOrNull(mail.sentAt),
  last_error: mail.lastError,
});
