import Type from 'typebox';
import type { Static } from 'typebox';

import type { OutboxMail } from '../store/repositories/mail.ts';
import { secondsOf, secondsOrNull } from './wire.ts';

const seconds = (description: string) => Type.Union([Type.Integer(), Type.Null()], { description });

export const mailFields = {
  id: Type.String({ description: '`mail_…`' }),
  object: Type.Literal('mail'),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
  to: Type.String(),
  subject: Type.String(),
  kind: Type.String({ description: 'Kind of the mail: `invitation`, `verification`, `low_balance`.' }),
  account_id: Type.Union([Type.String(), Type.Null()]),
  state: Type.Union([Type.Literal('waiting'), Type.Literal('sent'), Type.Literal('failed')], {
    description: '`waiting` for its next attempt, or, without `mail.smtp`, to be read here.',
  }),
  attempts: Type.Integer(),
  sent_at: seconds('Unix seconds; null: it was not sent.'),
  last_error: Type.Union([Type.String(), Type.Null()], {
    description: 'The mail server’s answer to the last attempt.',
  }),
};
export const mailSchema = Type.Object(mailFields);

/** A mail of the outbox, without its text. */
export const mailObject = (mail: OutboxMail): Static<typeof mailSchema> => ({
  id: mail.id,
  object: 'mail',
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
