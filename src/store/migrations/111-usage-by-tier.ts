/** Usage by service tier and ending, and how long requests took. The job adds up the hours and days whose requests have rows. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';
import { hoursSummedUp } from '../schema/triggers.ts';

const sums = [
  'requests',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'cost',
  'uncharged',
];

export const usageByTier = {
  up: async (db: Kysely<Database>, dialect: SchemaDialect): Promise<void> => {
    const integer = dialect === 'sqlite' ? 'integer' : 'bigint';
    const storage = dialect === 'sqlite' ? ' strict, without rowid' : '';
    const groups = '"model_id" text not null, "key_id" text not null, "tier" text not null, "ending" text not null';
    const columnsOf = (names: readonly string[]) => names.map((name) => `"${name}" ${integer} not null`);
    for (const statement of [
      `create table "usage_tier_hour" ("account_id" text not null, "hour" ${integer} not null, ${groups}, ${columnsOf(sums).join(', ')}, constraint "usage_tier_hour_key" primary key ("account_id", "hour", "model_id", "key_id", "tier", "ending"))${storage}`,
      `create index "usage_tier_hour_of_all" on "usage_tier_hour" ((hour + 0))`,
      `create table "usage_latency_day" ("account_id" text not null, "day" ${integer} not null, ${groups}, "counts" text not null, constraint "usage_latency_day_key" primary key ("account_id", "day", "model_id", "key_id", "tier", "ending"))${storage}`,
      `create index "usage_latency_day_of_all" on "usage_latency_day" ((day + 0))`,
      ...hoursSummedUp('usage_tier_hour', dialect),
      // Their rows may be removed, so nothing says which tier they were of.
      `insert into usage_tier_hour (account_id, hour, model_id, key_id, tier, ending, ${sums.join(', ')})
       select account_id, hour, model_id, key_id, '', '', ${sums.join(', ')} from usage_hour
       where hour < (select kept_since from usage_retention)`,
    ])
      await sql.raw(statement).execute(db);
  },
};
