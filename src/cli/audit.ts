import { auditObject } from '../account-api/audit-object.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table, timeText } from './output.ts';

/** The audit log, newest first, in the form of GET /v1/admin/audit. */
export async function listAudit(
  context: Context,
  options: { readonly account?: string; readonly limit: number },
): Promise<number> {
  const rows = await reading(context, (repositories) =>
    repositories.listAudit({ accountId: options.account, limit: options.limit }),
  );
  const entries = rows.map(auditObject);
  context.print.result(
    entries,
    table(
      ['at', 'account', 'who', 'action', 'of', 'outcome'],
      entries.map(({ at, account_id: account, actor, action, target, outcome }) => [
        timeText(at),
        account ?? '-',
        actor.id === null ? actor.kind : (actor.name ?? actor.id),
        action,
        target ?? '-',
        outcome,
      ]),
    ),
  );
  return 0;
}
