/**
 * From the schema of revision e2c9a07 (steps 001 to 026), or of those after it (up to 029), to the baseline: what 027 to 029 did,
 * and the field's words for balances, leases and heartbeats.
 */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';
import { StoreError } from '../store-error.ts';

const oldest = '026-hours-of-all';

export async function up(db: Kysely<Database>, dialect: SchemaDialect, ran: readonly string[]): Promise<void> {
  if (!ran.includes(oldest))
    throw new StoreError(
      'unusable',
      `The database is of a version that this one cannot upgrade: it has nothing after ${ran.at(-1)}. Start it once with a ` +
        `version that knows ${oldest} (revision e2c9a07), then with this one.`,
    );
  if (dialect === 'postgres') await refuseOthers(db);
  const statements = [
    ...(ran.includes('027-sealed-answers') ? [] : encryptedAnswers),
    ...(ran.includes('028-tax-status') ? [] : taxStatus),
    ...(ran.includes('029-receipts') ? [] : receipts[dialect]),
    ...renamed,
    ...(dialect === 'postgres' ? renamedInPostgres : []),
    'drop table kysely_migration_lock',
  ];
  for (const statement of statements) await sql.raw(inDialect(statement, dialect)).execute(db);
}

/** An earlier version that runs beside this one would look for tables that are gone, and could settle nothing. */
async function refuseOthers(db: Kysely<Database>): Promise<void> {
  await sql`lock table replica in access exclusive mode`.execute(db);
  const { rows } = await sql<{ alive: bigint }>`
    select count(*) as alive from replica where beat > extract(epoch from clock_timestamp()) * 1000 - 5000`.execute(db);
  if (rows[0]!.alive === 0n) return;
  throw new StoreError(
    'unusable',
    `${rows[0]!.alive} process(es) of an earlier version use the database, and cannot work on it once it is brought up to date. ` +
      `Stop them all, and start this version five seconds later.`,
  );
}

/** Types and endings differ by database. */
function inDialect(statement: string, dialect: SchemaDialect): string {
  const words =
    dialect === 'sqlite'
      ? { BYTES: 'blob', INTEGER: 'integer', STRICT: 'strict, without rowid', REWRITTEN: 'strict, without rowid' }
      : { BYTES: 'bytea', INTEGER: 'bigint', STRICT: '', REWRITTEN: 'with (fillfactor = 50)' };
  return statement.replaceAll(/\b(?:BYTES|INTEGER|STRICT|REWRITTEN)\b/g, (word) => words[word as keyof typeof words]);
}

/** Answers for idempotency keys are kept encrypted; what is in `answer` goes with its row, in a day. */
const encryptedAnswers = ['alter table idempotent_request add column sealed_answer BYTES'];

/** Until now all customers were taxed alike. */
const taxStatus = [
  `alter table account add column tax_status text default 'standard' not null
     check (tax_status in ('standard', 'exempt', 'reverse_charge'))`,
];

/** Earlier payments have no receipts: the statement of the month that uses them has their tax. */
const receiptTable = [
  `create table receipt (
    id text not null primary key,
    account_id text not null,
    kind text not null check (kind in ('receipt', 'credit_note', 'credit_note_reversal')),
    number text not null unique,
    year INTEGER not null,
    sequence INTEGER not null check (sequence > 0),
    transfer_id BYTES unique,
    provider text,
    return_id text,
    corrects text not null,
    topup_id text,
    issued_at INTEGER not null,
    total INTEGER not null,
    method text not null,
    data text not null,
    constraint receipt_sequence unique (year, sequence),
    constraint receipt_return unique (provider, return_id, kind)
  ) STRICT`,
  'create index receipt_account on receipt (account_id, year, sequence)',
  'create index receipt_topup on receipt (topup_id)',
  `create index transfer_topup on transfer (at) where kind = 'topup'`,
];

const receipts: Readonly<Record<SchemaDialect, readonly string[]>> = {
  sqlite: [
    ...receiptTable,
    `create trigger receipt_no_update before update on receipt begin select raise(abort, 'receipt is immutable'); end`,
    `create trigger receipt_no_delete before delete on receipt begin select raise(abort, 'receipt is immutable'); end`,
  ],
  postgres: [
    ...receiptTable,
    `create function receipt_is_immutable() returns trigger language plpgsql as $$ begin raise exception 'receipt is immutable'; end $$`,
    `create trigger receipt_no_update before update on receipt for each row execute function receipt_is_immutable()`,
    `create trigger receipt_no_delete before delete on receipt for each row execute function receipt_is_immutable()`,
    `create trigger receipt_no_truncate before truncate on receipt for each statement execute function receipt_is_immutable()`,
  ],
};

/** The small tables are copied, so that their keys and indexes have the new names too. */
const renamed = [
  `create table credit_lease (
    replica_id BYTES not null,
    account_id text not null,
    remaining INTEGER not null check (remaining >= 0),
    constraint credit_lease_key primary key (replica_id, account_id)
  ) REWRITTEN`,
  'insert into credit_lease (replica_id, account_id, remaining) select replica_id, account_id, remaining from slice',
  'drop table slice',
  'create index credit_lease_account on credit_lease (account_id)',

  `create table budget_balance (
    id text not null primary key,
    subject text not null,
    per text not null,
    starts_at INTEGER not null,
    ends_at INTEGER,
    amount INTEGER not null,
    spent_before INTEGER not null check (spent_before >= 0),
    available INTEGER not null
  ) STRICT`,
  `insert into budget_balance (id, subject, per, starts_at, ends_at, amount, spent_before, available)
   select id, subject, per, starts_at, ends_at, amount, spent_before, available from purse`,
  'drop table purse',
  'create index budget_balance_subject on budget_balance (subject, per)',

  `create table budget_lease (
    replica_id BYTES not null,
    balance_id text not null,
    remaining INTEGER not null check (remaining >= 0),
    constraint budget_lease_key primary key (replica_id, balance_id)
  ) REWRITTEN`,
  'insert into budget_lease (replica_id, balance_id, remaining) select replica_id, purse_id, remaining from purse_slice',
  'drop table purse_slice',
  'create index budget_lease_balance on budget_lease (balance_id)',

  'alter table replica rename column beat to heartbeat_at',
  'alter table audit_log rename column wish to input',
  'alter table alert rename column webhook to is_webhook',
  'alter table notice rename column webhook to is_webhook',
];

const renamedInPostgres = [
  'alter function change_is_told() rename to notify_of_change',
  'alter trigger change_told on change rename to change_notifies',
  // Functions do not follow the columns that they name.
  `create or replace function audit_log_is_append_only() returns trigger language plpgsql as $$ begin
       if tg_op = 'UPDATE' then
         if not (new.id is distinct from old.id or new.at is distinct from old.at or new.account_id is distinct from old.account_id
           or new.actor_kind is distinct from old.actor_kind or new.actor_id is distinct from old.actor_id
           or new.action is distinct from old.action or new.target is distinct from old.target
           or new.request_id is distinct from old.request_id or new.completes is distinct from old.completes
           or new.outcome is distinct from old.outcome or new."actor_name" is not null or new."address" is not null
           or new."before" is not null or new."after" is not null or new."input" is not null) then return new; end if;
       end if;
       raise exception 'audit_log is append-only';
     end $$`,
  // Makes the partition of everything before a time too.
  `create or replace function make_usage_partition(name text, first_id bytea, end_id bytea) returns void language plpgsql as $$
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
  end $$`,
];
