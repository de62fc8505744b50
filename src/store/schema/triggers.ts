/** Constraints enforced by the databases themselves, regardless of the writer: even an earlier version or a person with a shell. */

type Dialect = 'sqlite' | 'postgres';

/** M7: rows of the ledger, and issued documents, are only added; they are deleted only where `mayBeDeleted` allows it. */
export function immutable(
  table: string,
  dialect: Dialect,
  { isPartitioned, mayBeDeleted }: { readonly isPartitioned: boolean; readonly mayBeDeleted: string | undefined },
): readonly string[] {
  if (dialect === 'sqlite')
    return ['update', 'delete'].map((change) => {
      const when = change === 'delete' && mayBeDeleted !== undefined ? ` when (${mayBeDeleted}) is not true` : '';
      return `create trigger ${table}_no_${change} before ${change} on ${table}${when} begin select raise(abort, '${table} is immutable'); end`;
    });
  const unless =
    mayBeDeleted === undefined ? '' : `if tg_op = 'DELETE' then if ${mayBeDeleted} then return old; end if; end if; `;
  return [
    `create function ${table}_is_immutable() returns trigger language plpgsql as $$ begin ${unless}raise exception '${table} is immutable'; end $$`,
    // Row triggers do not fire for it.
    `create trigger ${table}_no_truncate before truncate on ${table} for each statement execute function ${table}_is_immutable()`,
    // Partitions have separate ones.
    ...(isPartitioned ? [] : ['update', 'delete']).map(
      (change) =>
        `create trigger ${table}_no_${change} before ${change} on ${table} for each row execute function ${table}_is_immutable()`,
    ),
  ];
}

const fixed = ['id', 'at', 'account_id', 'actor_kind', 'actor_id', 'action', 'target', 'request_id'];
const isDifferent = (operator: string): string =>
  [...fixed, 'completes', 'outcome'].map((column) => `new.${column} ${operator} old.${column}`).join(' or ');
/** Columns of the audit log that may hold a user's name. It can be removed, but not replaced. */
export const auditNames = ['actor_name', 'address', 'before', 'after', 'input'] as const;
const keptName = auditNames.map((column) => `new."${column}" is not null`).join(' or ');

/** Rows of the audit log are only added; deleting an account removes users' names from its entries. */
export const appendOnly: Readonly<Record<Dialect, readonly string[]>> = {
  sqlite: [
    `create trigger audit_log_no_delete before delete on audit_log
     begin select raise(abort, 'audit_log is append-only'); end`,
    `create trigger audit_log_no_update before update on audit_log when ${isDifferent('is not')} or ${keptName}
     begin select raise(abort, 'audit_log is append-only'); end`,
  ],
  postgres: [
    `create or replace function audit_log_is_append_only() returns trigger language plpgsql as $$ begin
       if tg_op = 'UPDATE' then
         if not (${isDifferent('is distinct from')} or ${keptName}) then return new; end if;
       end if;
       raise exception 'audit_log is append-only';
     end $$`,
    `create trigger audit_log_no_change before update or delete on audit_log
     for each row execute function audit_log_is_append_only()`,
    `create trigger audit_log_no_truncate before truncate on audit_log
     for each statement execute function audit_log_is_append_only()`,
  ],
};

const removed = 'request from before the retention of usage';
const summedUp = 'usage from before its retention is summed up for good';

const summedHours = ['usage_hour', 'usage_tag_hour', 'usage_tier_hour'] as const;

/** Hours before the retention stay as they are. */
export const hoursSummedUp = (table: (typeof summedHours)[number], dialect: Dialect): readonly string[] =>
  dialect === 'sqlite'
    ? ['update', 'delete'].map(
        (change) =>
          `create trigger ${table}_no_${change} before ${change} on ${table} when old.hour < (select kept_since from usage_retention)
           begin select raise(abort, '${summedUp}'); end`,
      )
    : [
        `create trigger ${table}_no_change before update or delete on ${table} for each row execute function usage_is_summed_up()`,
      ];

/**
 * Decision 037. A row that ended before the retention is not added: it may have existed and been removed, and settling twice is settling
 * once (M3). The sums of earlier hours stay, because there are no rows to recompute them from. The retention only grows.
 */
export const retention: Readonly<Record<Dialect, readonly string[]>> = {
  sqlite: [
    `create trigger usage_not_removed before insert on usage when new.ended_at < (select kept_since from usage_retention)
     begin select raise(abort, '${removed}'); end`,
    ...summedHours.flatMap((table) => hoursSummedUp(table, 'sqlite')),
    `create trigger usage_retention_grows before update on usage_retention when new.kept_since < old.kept_since
     begin select raise(abort, 'usage_retention only grows'); end`,
    `create trigger usage_retention_no_delete before delete on usage_retention
     begin select raise(abort, 'usage_retention only grows'); end`,
  ],
  postgres: [
    `create function usage_is_not_removed() returns trigger language plpgsql as $$ begin
       if new.ended_at < (select kept_since from usage_retention) then
         raise exception '${removed}' using errcode = 'check_violation';
       end if;
       return new;
     end $$`,
    // A request that ended before the retention began before it, so it would be in one of these partitions. Others need no check: one for a
    // batch of 64 took 14 % of its insert's processor time, 5 % of a settlement's.
    `create function guard_removed_usage(until bigint) returns void language plpgsql as $$
     declare part regclass;
     begin
       for part in
         select inhrelid::regclass from pg_inherits join pg_class on pg_class.oid = inhrelid
         where inhparent = 'usage'::regclass
           and coalesce(substring(pg_get_expr(relpartbound, pg_class.oid) from 'FROM \\(''\\\\x([0-9a-f]{12})'), '') < lpad(to_hex(until), 12, '0')
           and not exists (select 1 from pg_trigger where tgrelid = inhrelid and tgname = 'usage_not_removed')
       loop
         execute format('create trigger usage_not_removed before insert on %s for each row execute function usage_is_not_removed()', part);
       end loop;
     end $$`,
    `create function usage_is_summed_up() returns trigger language plpgsql as $$ begin
       if old.hour < (select kept_since from usage_retention) then
         raise exception '${summedUp}' using errcode = 'check_violation';
       end if;
       if tg_op = 'DELETE' then return old; end if;
       return new;
     end $$`,
    ...summedHours.flatMap((table) => hoursSummedUp(table, 'postgres')),
    `create function usage_retention_only_grows() returns trigger language plpgsql as $$ begin
       if tg_op = 'UPDATE' then
         if new.kept_since > old.kept_since then perform guard_removed_usage(new.kept_since); end if;
         if new.kept_since >= old.kept_since then return new; end if;
       end if;
       raise exception 'usage_retention only grows';
     end $$`,
    `create trigger usage_retention_grows before update or delete on usage_retention
     for each row execute function usage_retention_only_grows()`,
  ],
};

/**
 * PostgreSQL: every row of `change` carries its transaction, so that a reader finds exactly what has been committed since its last poll,
 * however long a transaction took; the time is the database's, and listeners are notified. `change_pruned` is the newest transaction whose
 * changes have been deleted: a reader that has not seen it has missed some. On SQLite one process makes every change, and no reader follows
 * them.
 */
export const notifiedChanges: readonly string[] = [
  'alter table change add column tx bigint not null default txid_current()',
  'create index change_tx on change (tx)',
  `create function notify_of_change() returns trigger language plpgsql as $$ begin
       new.at := (extract(epoch from clock_timestamp()) * 1000)::bigint;
       perform pg_notify('tokenhouse_change', '');
       return new;
     end $$`,
  'create trigger change_notifies before insert on change for each row execute function notify_of_change()',
  'create table change_pruned (id smallint primary key check (id = 1), tx bigint not null)',
  'insert into change_pruned (id, tx) values (1, 0)',
];

/**
 * PostgreSQL: creates an empty partition of usage; without bounds, the default one. Created separately and then attached, so that
 * settlements do not wait; it has its own triggers (M7), because those of a partitioned table are not inherited before PostgreSQL 13.
 */
export const makeUsagePartition = `
  create or replace function make_usage_partition(name text, first_id bytea, end_id bytea) returns void language plpgsql as $$
  begin
    execute format('create table %I (like usage including defaults including constraints including indexes including storage)', name);
    execute format('create trigger usage_no_update before update on %I for each row execute function usage_is_immutable()', name);
    execute format('create trigger usage_no_delete before delete on %I for each row execute function usage_is_immutable()', name);
    execute format('create trigger usage_no_truncate before truncate on %I for each statement execute function usage_is_immutable()', name);
    if end_id is null then
      execute format('alter table usage attach partition %I default', name);
    elsif first_id is null then
      execute format('alter table usage attach partition %I for values from (minvalue) to (%L)', name, end_id);
    else
      execute format('alter table usage attach partition %I for values from (%L) to (%L)', name, first_id, end_id);
    end if;
  end $$`;

const month = `date_trunc('month', timezone('UTC', now()))`;

/** Everything before this month is one partition; the following months are created ahead of time (postgres/partitions.ts). */
export const usagePartitions: readonly string[] = [
  makeUsagePartition,
  `select make_usage_partition('usage_before_' || to_char(${month}, 'YYYY_MM'), null,
     decode(lpad(to_hex((extract(epoch from ${month}) * 1000)::bigint), 12, '0'), 'hex'))`,
  `select make_usage_partition('usage_default', null, null)`,
];
