/** The tables as Kysely sees them, the same on SQLite and PostgreSQL: the types of schema/tables.ts. */
import type { StoredTables } from './schema/column.ts';
import type { tables } from './schema/tables.ts';

export type Database = StoredTables<typeof tables>;

/** The allowed values of a text column. */
type ValueOf<
  Name extends keyof typeof tables,
  Key extends keyof (typeof tables)[Name]['columns'],
> = (typeof tables)[Name]['columns'][Key] extends { readonly type: { readonly value: infer Value } } ? Value : never;

export type AccountStatus = ValueOf<'account', 'status'>;
export type ChangeKind = ValueOf<'change', 'kind'>;
export type Ending = ValueOf<'usage', 'ending'>;
export type TransferKind = ValueOf<'transfer', 'kind'>;
export type AuditOutcome = ValueOf<'audit_log', 'outcome'>;
/** The roles of a user in an account, from most to least privileged. */
export type MemberRole = ValueOf<'member', 'role'>;
