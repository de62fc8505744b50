import { auditId, readPrinted } from '../accounts/audit.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';

/** The audit log, newest first. */
export async function listAudit(
  context: Context,
  options: { readonly account?: string; readonly limit: number },
): Promise<number> {
  const entries = await reading(context, (repositories) =>
    repositories.listAudit({ accountId: options.account, limit: options.limit }),
  );
  context.print.result(
    entries.map((entry) => ({
      id: auditId(entry),
      at: new Date(entry.at).toISOString(),
      account: entry.accountId,
      actor: entry.actor,
      action: entry.action,
      target: entry.target,
      outcome: entry.outcome ?? 'done',
      asked: readPrinted(entry.input),
      before: readPrinted(entry.before),
      after: readPrinted(entry.after),
      request: entry.requestId,
      address: entry.address,
    })),
    table(
      ['at', 'account', 'who', 'action', 'of', 'outcome'],
      entries.map(({ at, accountId, actor, action, target, outcome }) => [
        new Date(at).toISOString(),
        accountId ?? '-',
        actor.id === null ? actor.kind : `${actor.name ?? actor.id}`,
        action,
        target ?? '-',
        outcome ?? 'done',
      ]),
    ),
  );
  return 0;
}
