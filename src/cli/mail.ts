import { mailObject } from '../account-api/mail-object.ts';
import { OperationError } from '../accounts/operation.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table, timeText } from './output.ts';

/** The newest mails of the outbox, without their texts, in the form of GET /v1/admin/outbox. */
export async function listMail(context: Context, { limit }: { readonly limit: number }): Promise<number> {
  const rows = await reading(context, (repositories) => repositories.listMail({ limit }));
  const mails = rows.map(mailObject);
  context.print.result(
    mails,
    table(
      ['id', 'at', 'to', 'subject', 'kind', 'state', 'attempts'],
      mails.map((mail) => [
        mail.id,
        timeText(mail.created_at),
        mail.to,
        mail.subject,
        mail.kind,
        mail.last_error === null ? mail.state : `${mail.state}: ${mail.last_error}`,
        mail.attempts,
      ]),
    ),
  );
  return 0;
}

/** One mail with its text, while it has one. */
export async function showMail(context: Context, _options: unknown, id: string | undefined): Promise<number> {
  const row = await reading(context, (repositories) => repositories.getMail({ id: id ?? '' }));
  if (row === undefined) throw new OperationError(`There is no mail ${id}. List them with: tokenhouse mail list`);
  const mail = { ...mailObject(row), text: row.body };
  context.print.result(mail, [
    `To: ${mail.to}`,
    `Date: ${timeText(mail.created_at)}`,
    `Subject: ${mail.subject}`,
    '',
    mail.text ?? `(${mail.state}, so its text is no longer kept)`,
  ]);
  return 0;
}
