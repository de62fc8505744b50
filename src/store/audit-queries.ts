/** Who changed what (`audit_log`). */
import type { Kysely, Selectable } from 'kysely';
import type { AuditLogTable, Database } from './database.ts';

/** Who makes a change: a person who is signed in, a key, the command line, or the service by itself. */
export interface Actor {
  readonly kind: 'user' | 'key' | 'cli' | 'system';
  readonly id: string | null;
  /** As it was called then. */
  readonly name: string | null;
}

export interface AuditEntry {
  /** UUIDv7. */
  readonly id: Uint8Array;
  readonly at: number;
  /** null: a change of the server, not of one account. */
  readonly accountId: string | null;
  readonly actor: Actor;
  /** `key.create`. */
  readonly action: string;
  /** Id of what was changed. */
  readonly target: string | null;
  /** JSON; never a secret. */
  readonly before: string | null;
  readonly after: string | null;
  readonly requestId: string | null;
  readonly address: string | null;
}

export async function recordAudit(db: Kysely<Database>, entry: AuditEntry): Promise<void> {
  await db
    .insertInto('audit_log')
    .values({
      id: entry.id,
      at: entry.at,
      account_id: entry.accountId,
      actor_kind: entry.actor.kind,
      actor_id: entry.actor.id,
      actor_name: entry.actor.name,
      action: entry.action,
      target: entry.target,
      before: entry.before,
      after: entry.after,
      request_id: entry.requestId,
      address: entry.address,
    })
    .execute();
}

/** Newest first, older than `before` where given. Without `accountId`: of all accounts, and of the server. */
export async function listAudit(
  db: Kysely<Database>,
  request: { readonly accountId?: string; readonly before?: Uint8Array; readonly limit: number },
): Promise<readonly AuditEntry[]> {
  let query = db.selectFrom('audit_log').selectAll().orderBy('id', 'desc').limit(request.limit);
  if (request.accountId !== undefined) query = query.where('account_id', '=', request.accountId);
  if (request.before !== undefined) query = query.where('id', '<', request.before);
  return (await query.execute()).map(toEntry);
}

const toEntry = (row: Selectable<AuditLogTable>): AuditEntry => ({
  id: row.id,
  at: Number(row.at),
  accountId: row.account_id,
  actor: { kind: row.actor_kind, id: row.actor_id, name: row.actor_name },
  action: row.action,
  target: row.target,
  before: row.before,
  after: row.after,
  requestId: row.request_id,
  address: row.address,
});
