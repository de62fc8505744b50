/** What the service has done, by minute, quarter of an hour and hour. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export const history = {
  up: async (db: Kysely<Database>, dialect: SchemaDialect): Promise<void> => {
    const integer = dialect === 'sqlite' ? 'integer' : 'bigint';
    const storage = dialect === 'sqlite' ? ' strict, without rowid' : '';
    const counts = [
      'requests',
      'refused',
      'failed',
      'prompt_tokens',
      'completion_tokens',
      'answer_tokens',
      'answer_ms',
      'waits',
      'wait_ms',
      'wait_longest_ms',
      'first_token_25',
      'first_token_50',
      'first_token_100',
      'first_token_250',
      'first_token_500',
      'first_token_1000',
      'first_token_2500',
      'first_token_5000',
      'first_token_10000',
      'first_token_30000',
      'first_token_60000',
      'first_token_longer',
    ].map((name) => `"${name}" ${integer} not null`);
    await sql
      .raw(
        `create table "history" ("step" ${integer} not null, "at" ${integer} not null, "model" text not null, "backend" text not null, ${counts.join(', ')}, constraint "history_key" primary key ("step", "at", "model", "backend"))${storage}`,
      )
      .execute(db);
  },
};
