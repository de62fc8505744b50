import Type from 'typebox';
import type { Static } from 'typebox';

import { auditId, readAuditId, readPrinted } from '../accounts/audit.ts';
import { firstIdOf } from '../platform/ids/uuid.ts';
import type { AuditEntry, AuditRequest } from '../store/repositories/audit.ts';
import { notThere } from './input.ts';
import { nullable, pageLimit, pageQuery, secondsOf } from './wire.ts';

const seconds = (description: string) =>
  Type.Optional(Type.Integer({ minimum: 0, maximum: 100_000_000_000, description }));

/** The query of a list of changes. */
export const auditQuery = {
  ...pageQuery,
  actor: Type.Optional(Type.String({ minLength: 1, maxLength: 100, description: 'Id of the person or the key.' })),
  action: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
      maxItems: 50,
      description: 'Such as `key.create`; `key` alone is every change of a key.',
    }),
  ),
  target: Type.Optional(Type.String({ minLength: 1, maxLength: 255, description: 'Id of what was changed.' })),
  start_time: seconds('Unix seconds; changes of this time or later.'),
  end_time: seconds('Unix seconds; changes before this time.'),
};

/** The request to the repositories, for one entry more than the page has. Throws `http_404` for an invalid cursor. */
export function auditRequest(query: Static<Type.TObject<typeof auditQuery>>): AuditRequest & { readonly page: number } {
  const { after, end_time: end, start_time: start } = query;
  const cursor = after === undefined ? undefined : readAuditId(after);
  if (after !== undefined && cursor === undefined) throw notThere();
  const page = pageLimit(query.limit);
  return {
    before: earlier(cursor, end === undefined ? undefined : firstIdOf(end * 1000)),
    since: start === undefined ? undefined : firstIdOf(start * 1000),
    actorId: query.actor,
    actions: query.action,
    target: query.target,
    page,
    limit: page + 1,
  };
}

export const auditSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('audit_log'),
  at: Type.Integer({ description: 'Unix seconds.' }),
  account_id: nullable(Type.String()),
  actor: Type.Object({
    kind: Type.Enum(['user', 'key', 'cli', 'system']),
    id: nullable(Type.String()),
    name: nullable(Type.String({ description: 'Its name at that time.' })),
  }),
  action: Type.String({ description: 'Such as `key.create`.' }),
  target: nullable(Type.String({ description: 'Id of what was changed.' })),
  outcome: Type.Enum(['done', 'refused', 'failed', 'begun'], {
    description: '`begun`: the change was started, and its outcome is not known (yet).',
  }),
  asked: Type.Unknown({ description: 'The requested change; null where it is not kept.' }),
  before: Type.Unknown({ description: 'The state before; null where there was nothing.' }),
  after: Type.Unknown({ description: 'The state after.' }),
  request_id: nullable(Type.String()),
  address: nullable(Type.String()),
});
export type AuditObject = Static<typeof auditSchema>;

export const auditObject = (entry: AuditEntry): AuditObject => ({
  id: auditId(entry),
  object: 'audit_log',
  at: secondsOf(entry.at),
  account_id: entry.accountId,
  actor: entry.actor,
  action: entry.action,
  target: entry.target,
  outcome: entry.outcome ?? 'done',
  asked: readPrinted(entry.input),
  before: readPrinted(entry.before),
  after: readPrinted(entry.after),
  request_id: entry.requestId,
  address: entry.address,
});

/** The narrower of two bounds: ids sort by time. */
export const earlier = (one: Uint8Array | undefined, other: Uint8Array | undefined): Uint8Array | undefined =>
  one === undefined || (other !== undefined && Buffer.compare(other, one) < 0) ? other : one;
