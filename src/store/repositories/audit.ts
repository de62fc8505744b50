/** Who changed what (`audit_log`). */
import { sql, type Kysely, type Selectable } from 'kysely';
import type { AuditOutcome, Database } from '../database.ts';

/** Who makes a change: a signed-in user, a key, the command line, or the service itself. */
export interface Actor {
  readonly kind: 'user' | 'key' | 'cli' | 'system';
  readonly id: string | null;
  /** Its name at that time. */
  readonly name: string | null;
}

export interface AuditEntry {
  /** UUIDv7. */
  readonly id: Uint8Array;
  readonly at: number;
  /** null: a change of the server, not of one account. */
  readonly accountId: string | null;
  readonly actor: Actor;
  /** For example `key.create`. */
  readonly action: string;
  /** Id of what was changed. */
  readonly target: string | null;
  /** JSON; never a secret. */
  readonly before: string | null;
  readonly after: string | null;
  readonly requestId: string | null;
  readonly address: string | null;
  /** `begun`: written before the change; its outcome was never written, or is not yet. Left out: done. */
  readonly outcome?: AuditOutcome;
  /** JSON: the input of the change. */
  readonly input?: string | null;
}

/** As it is written: the outcome of a change that was written as begun is an entry that references that one. */
export interface NewAuditEntry extends AuditEntry {
  readonly completes?: Uint8Array;
}

export async function recordAudit(db: Kysely<Database>, entry: NewAuditEntry): Promise<void> {
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
      completes: entry.completes ?? null,
      outcome: entry.outcome ?? null,
      input: entry.input ?? null,
    })
    .execute();
}

/** What users do to their own sign-in. It belongs to no account: each account sees what its members did since they joined. */
export const signInActions = [
  'session.create',
  'session.delete',
  'session.delete_others',
  'person.edit',
  'email.change',
  'password.change',
  'password.reset',
  'two_factor.begin',
  'two_factor.enable',
  'two_factor.disable',
  'two_factor.backup_codes',
  'passkey.create',
  'passkey.delete',
] as const;

export interface AuditRequest {
  /** Left out: of all accounts and of the server. */
  readonly accountId?: string | undefined;
  readonly before?: Uint8Array | undefined;
  readonly actions?: readonly string[] | undefined;
  readonly limit: number;
}

/** Newest first, older than `before` where given; each change once, with its outcome. */
export async function listAudit(db: Kysely<Database>, request: AuditRequest): Promise<readonly AuditEntry[]> {
  const { accountId, before, actions, limit } = request;
  let query = db
    .selectFrom('audit_log')
    .leftJoin('audit_log as end', 'end.completes', 'audit_log.id')
    .selectAll('audit_log')
    .select(['end.outcome as end_outcome', 'end.after as end_after', 'end.target as end_target'])
    .select('end.account_id as end_account_id')
    .where('audit_log.completes', 'is', null)
    .orderBy('audit_log.id', 'desc')
    .limit(limit);
  if (accountId !== undefined)
    query = query.where('audit_log.id', 'in', (from) =>
      from.selectFrom(idsOf(db, { ...request, accountId })).select('id'),
    );
  if (before !== undefined) query = query.where('audit_log.id', '<', before);
  if (actions !== undefined) query = query.where('audit_log.action', 'in', actions);
  return (await query.execute()).map((row) =>
    toEntry({
      ...row,
      account_id: row.account_id ?? row.end_account_id,
      target: row.target ?? row.end_target,
      outcome: row.end_outcome ?? row.outcome,
      after: row.after ?? row.end_after,
    }),
  );
}

/** Ids of the newest entries that are about an account, each by an index: a long log of others costs nothing. */
function idsOf(
  db: Kysely<Database>,
  { accountId, before, actions, limit }: AuditRequest & { readonly accountId: string },
) {
  let own = db
    .selectFrom('audit_log')
    .select('id')
    .where('account_id', '=', accountId)
    .where('completes', 'is', null)
    .orderBy('id', 'desc')
    .limit(limit);
  // A change that creates an account or a key knows its id only when it is done.
  let completed = db
    .selectFrom('audit_log')
    .select(sql<Uint8Array>`completes`.as('id'))
    .where('account_id', '=', accountId)
    .where('completes', 'is not', null)
    .orderBy('completes', 'desc')
    .limit(limit);
  let ofMembers = db
    .selectFrom('member')
    .innerJoin('audit_log', 'audit_log.actor_id', 'member.user_id')
    .select('audit_log.id')
    .where('member.account_id', '=', accountId)
    .where('audit_log.account_id', 'is', null)
    .where('audit_log.actor_kind', '=', 'user')
    .where('audit_log.action', 'in', signInActions)
    .whereRef('audit_log.at', '>=', 'member.created_at')
    .orderBy('audit_log.id', 'desc')
    .limit(limit);
  if (before !== undefined) {
    own = own.where('id', '<', before);
    completed = completed.where('completes', '<', before);
    ofMembers = ofMembers.where('audit_log.id', '<', before);
  }
  if (actions !== undefined) {
    own = own.where('action', 'in', actions);
    completed = completed.where('action', 'in', actions);
    ofMembers = ofMembers.where('audit_log.action', 'in', actions);
  }
  const all = (part: typeof own, name: string) => db.selectFrom(part.as(name)).select('id');
  return all(own, 'own').union(all(completed, 'completed')).union(all(ofMembers, 'of_members')).as('about');
}

const toEntry = (row: Omit<Selectable<Database['audit_log']>, 'completes'>): AuditEntry => ({
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
  outcome: row.outcome ?? 'done',
  input: row.input,
});
