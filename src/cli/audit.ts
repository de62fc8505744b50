import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';

/** Who changed what, newest first. */
export async function listAudit(
  context: Context,
  options: { readonly account?: string; readonly limit: number },
): Promise<number> {
  const entries = await reading(context, (desk) =>
    desk.listAudit({ accountId: options.account, limit: options.limit }),
  );
  const read = (text: string | null | undefined): unknown =>
    text === undefined || text === null ? null : (JSON.parse(text) as unknown);
  context.print.result(
    entries.map((entry) => ({
      id: `audit_${Buffer.from(entry.id).toString('hex')}`,
      at: new Date(entry.at).toISOString(),
      account: entry.accountId,
      actor: entry.actor,
      action: entry.action,
      target: entry.target,
      outcome: entry.outcome ?? 'done',
      asked: read(entry.wish),
      before: read(entry.before),
      after: read(entry.after),
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
