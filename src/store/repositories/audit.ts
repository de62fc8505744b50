/** Who changed what (`audit_log`). */
import { sql, type Expression, type Kysely, type SqlBool } from 'kysely';
import type { AuditOutcome } from '../database.ts';
import type { Row, Rows } from '../schema/codec.ts';

/** The author of a change: a signed-in user, a key, the CLI, or the service itself. */
export interface Actor {
  readonly kind: 'user' | 'key' | 'cli' | 'system';
  readonly id: string | null;
  /** The name at that time. */
  readonly name: string | null;
}

/** `accountId` is null for a server-wide change. `before`, `after` and `input` are JSON, and never hold a secret. */
export type AuditEntry = Omit<
  Row<'audit_log'>,
  'actorKind' | 'actorId' | 'actorName' | 'completes' | 'outcome' | 'input'
> & {
  readonly actor: Actor;
  /** `begun`: recorded before the change; its outcome was never recorded, or not yet. Omitted: done. */
  readonly outcome?: AuditOutcome;
  readonly input?: string | null;
};

/** An entry to record: the outcome of a change that was recorded as begun is an entry that references that one. */
export type NewAuditEntry = AuditEntry & { readonly completes?: Uint8Array };

export async function recordAudit(db: Kysely<Rows>, { actor, ...entry }: NewAuditEntry): Promise<void> {
  await db
    .insertInto('audit_log')
    .values({ ...entry, actorKind: actor.kind, actorId: actor.id, actorName: actor.name })
    .execute();
}

/** Changes by users to their own sign-in. They belong to no account: each account sees its members' changes since they joined. */
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
  'provider.unlink',
] as const;

export interface AuditRequest {
  /** Omitted: those of all accounts and of the server. */
  readonly accountId?: string | undefined;
  /** Only entries older than this one. */
  readonly before?: Uint8Array | undefined;
  /** Only this entry and later ones; any id from that time works. */
  readonly since?: Uint8Array | undefined;
  /** Names of actions (`key.create`), or their subject (`key`). */
  readonly actions?: readonly string[] | undefined;
  readonly actorId?: string | undefined;
  readonly target?: string | undefined;
  readonly limit: number;
}

/** Lists entries newest first, older than `before` if given; each change once, with its outcome. */
export async function listAudit(db: Kysely<Rows>, request: AuditRequest): Promise<readonly AuditEntry[]> {
  const { accountId, limit } = request;
  let query = db
    .selectFrom('audit_log')
    .leftJoin('audit_log as end', 'end.completes', 'audit_log.id')
    .selectAll('audit_log')
    .select(['end.outcome as endOutcome', 'end.after as endAfter', 'end.target as endTarget'])
    .select('end.accountId as endAccountId')
    .where('audit_log.completes', 'is', null)
    .orderBy('audit_log.id', 'desc')
    .limit(limit);
  if (accountId === undefined)
    query = query.where((is) => is.and(narrowed(request, { targets: ['audit_log.target', 'end.target'] })));
  else
    query = query.where('audit_log.id', 'in', (from) =>
      from.selectFrom(idsOf(db, { ...request, accountId })).select('id'),
    );
  return (await query.execute()).map(
    ({ endOutcome, endAfter, endTarget, endAccountId, completes: _, actorKind, actorId, actorName, ...row }) => ({
      ...row,
      accountId: row.accountId ?? endAccountId,
      actor: { kind: actorKind, id: actorId, name: actorName },
      target: row.target ?? endTarget,
      outcome: endOutcome ?? row.outcome ?? 'done',
      after: row.after ?? endAfter,
    }),
  );
}

/** Returns ids of the newest entries about an account, each found by an index: a long log of others costs nothing. */
function idsOf(db: Kysely<Rows>, request: AuditRequest & { readonly accountId: string }) {
  const { accountId, limit } = request;
  const own = db
    .selectFrom('audit_log')
    .select('id')
    .where('accountId', '=', accountId)
    .where('completes', 'is', null)
    .where((is) => is.and(narrowed(request)))
    .orderBy('id', 'desc')
    .limit(limit);
  // A change that creates an account or a key knows its id only on completion.
  const completed = db
    .selectFrom('audit_log')
    .select(sql<Uint8Array>`completes`.as('id'))
    .where('accountId', '=', accountId)
    .where('completes', 'is not', null)
    .where((is) => is.and(narrowed(request, { id: 'audit_log.completes' })))
    .orderBy('completes', 'desc')
    .limit(limit);
  const ofMembers = db
    .selectFrom('member')
    .innerJoin('audit_log', 'audit_log.actorId', 'member.userId')
    .select('audit_log.id')
    .where('member.accountId', '=', accountId)
    .where('audit_log.accountId', 'is', null)
    .where('audit_log.actorKind', '=', 'user')
    .where('audit_log.action', 'in', signInActions)
    .whereRef('audit_log.at', '>=', 'member.createdAt')
    .where((is) => is.and(narrowed(request)))
    .orderBy('audit_log.id', 'desc')
    .limit(limit);
  const all = (part: typeof own, name: string) => db.selectFrom(part.as(name)).select('id');
  return all(own, 'own').union(all(completed, 'completed')).union(all(ofMembers, 'ofMembers')).as('about');
}

/** Applies a request's filters to the log. */
function narrowed(
  { before, since, actions, actorId, target }: AuditRequest,
  {
    id = 'audit_log.id',
    targets = ['audit_log.target'],
  }: { readonly id?: string; readonly targets?: readonly string[] } = {},
): Expression<SqlBool>[] {
  const either = (conditions: readonly Expression<SqlBool>[]): Expression<SqlBool> =>
    sql<SqlBool>`(${sql.join(conditions, sql` or `)})`;
  return [
    ...(before === undefined ? [] : [sql<SqlBool>`${sql.ref(id)} < ${before}`]),
    ...(since === undefined ? [] : [sql<SqlBool>`${sql.ref(id)} >= ${since}`]),
    ...(actorId === undefined ? [] : [sql<SqlBool>`${sql.ref('audit_log.actorId')} = ${actorId}`]),
    ...(target === undefined ? [] : [either(targets.map((column) => sql<SqlBool>`${sql.ref(column)} = ${target}`))]),
    ...(actions === undefined || actions.length === 0 ? [] : [either(actions.map(isAction))]),
  ];
}

/** Matches an action by name; `key` matches every action on a key. */
function isAction(name: string): Expression<SqlBool> {
  const action = sql.ref('audit_log.action');
  if (name.includes('.')) return sql<SqlBool>`${action} = ${name}`;
  return sql<SqlBool>`${action} like ${`${name.replaceAll(/[!%_]/g, '!$&')}.%`} escape '!'`;
}
