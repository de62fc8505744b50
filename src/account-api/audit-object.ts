import Type from 'typebox';
import type { Static } from 'typebox';

import { auditId, readPrinted } from '../accounts/audit.ts';
import type { AuditEntry } from '../store/repositories/audit.ts';
import { nullable, secondsOf } from './wire.ts';

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
