/** Batches, their lines, and the batch that a request was a line of. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export const batches = {
  up: async (db: Kysely<Database>, dialect: SchemaDialect): Promise<void> => {
    const integer = dialect === 'sqlite' ? 'integer' : 'bigint';
    const bytes = dialect === 'sqlite' ? 'blob' : 'bytea';
    const storage = dialect === 'sqlite' ? ' strict, without rowid' : '';
    for (const statement of [
      `alter table "usage" add column "batch_id" text`,
      `create table "batch" ("id" text not null primary key check (length(id) = 32), "account_id" text not null references "account" ("id"), "key_id" text not null, "wire" text not null check (wire in ('openai', 'anthropic')), "endpoint" text not null, "input_file_id" text not null, "status" text not null check (status in ('validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled')), "owner" ${bytes}, "created_at" ${integer} not null, "expires_at" ${integer} not null, "in_progress_at" ${integer}, "finalizing_at" ${integer}, "cancelling_at" ${integer}, "ended_at" ${integer}, "faults" text, "output_file_id" text, "error_file_id" text, "output_expires_after_ms" ${integer}, "metadata" text, "models" text, "requests" ${integer} not null, "completed" ${integer} not null, "errored" ${integer} not null, "cancelled" ${integer} not null, "expired" ${integer} not null, "has_lines" ${integer} not null)${storage}`,
      `create index "batch_account" on "batch" ("account_id", "created_at", "id")`,
      `create index "batch_open" on "batch" ("created_at", "id") where has_lines = 1`,
      `create index "batch_input" on "batch" ("input_file_id") where has_lines = 1`,
      `create table "batch_line" ("batch_id" text not null, "line" ${integer} not null, "custom_id" text not null, "model_id" text not null, "offset_bytes" ${integer} not null, "bytes" ${integer} not null, "state" text not null check (state in ('waiting', 'running', 'completed', 'errored')), "owner" ${bytes}, "request_id" ${bytes}, "tries" ${integer} not null, "not_before" ${integer} not null, "result" text, constraint "batch_line_key" primary key ("batch_id", "line"))${storage}`,
      `create index "batch_line_waiting" on "batch_line" ("batch_id", "model_id", "line") where state = 'waiting'`,
      `create index "batch_line_running" on "batch_line" ("batch_id", "line") where state = 'running'`,
    ])
      await sql.raw(statement).execute(db);
  },
};
