import { OperationError } from '../accounts/operation.ts';
import type { OutboxMail } from '../store/repositories/mail.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';

/** The newest mails of the outbox, without their texts. */
export async function listMail(context: Context, { limit }: { readonly limit: number }): Promise<number> {
  const mails = await reading(context, (repositories) => repositories.listMail({ limit }));
  context.print.result(
    mails.map(jsonOf),
    table(
      ['id', 'at', 'to', 'subject', 'kind', 'state', 'attempts'],
      mails.map((mail) => [
        mail.id,
        timeOf(mail.createdAt),
        mail.recipient,
        mail.subject,
        mail.kind,
        mail.lastError === null ? mail.state : `${mail.state}: ${mail.lastError}`,
        mail.attempts,
      ]),
    ),
  );
  return 0;
}

/** One mail with its text, while it has one. */
export async function showMail(context: Context, _options: unknown, id: string | undefined): Promise<number> {
  const mail = await reading(context, (repositories) => repositories.getMail({ id: id ?? '' }));
  if (mail === undefined) throw new OperationError(`There is no mail ${id}. List them with: tokenhouse mail list`);
  context.print.result({ ...jsonOf(mail), text: mail.body }, [
    `To: ${mail.recipient}`,
    `Date: ${timeOf(mail.createdAt)}`,
    `Subject: ${mail.subject}`,
    '',
    mail.body ?? `(${mail.state}, so its text is no longer kept)`,
  ]);
  return 0;
}

const timeOf = (ms: number): string => new Date(ms).toISOString();

const jsonOf = (mail: OutboxMail) => ({
  id: mail.id,
  created_at: timeOf(mail.createdAt),
  to: mail.recipient,
  subject: mail.subject,
  kind: mail.kind,
  account_id: mail.accountId,
  state: mail.state,
  attempts: mail.attempts,
  sent_at: mail.sentAt === null ? null : timeOf(mail.sentAt),
  last_error: mail.lastError,
});
