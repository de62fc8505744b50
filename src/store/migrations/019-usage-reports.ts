import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Reports in an account's time zone: sums by its days, sums by labels, and how far each of them goes. */
export async function up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  const { text, time, count } = columnTypes(dialect);
  await db.schema
    .alterTable('account')
    .addColumn('time_zone', text, (column) => column.notNull().defaultTo('UTC'))
    .execute();
  // null: a row from before it was recorded.
  await db.schema.alterTable('usage').addColumn('zdr', count).execute();

  await createSums(db, dialect, 'usage_day', ['day', 'model_id', 'key_id']);
  await createSums(db, dialect, 'usage_tag_hour', ['hour', 'tag', 'model_id', 'key_id']);
  await createSums(db, dialect, 'usage_tag_day', ['day', 'tag', 'model_id', 'key_id']);
  // For the job that rewrites the newest hours, and for one label over a long time.
  await db.schema.createIndex('usage_tag_hour_hour').on('usage_tag_hour').column('hour').execute();
  await db.schema
    .createIndex('usage_tag_hour_tag')
    .on('usage_tag_hour')
    .columns(['account_id', 'tag', 'hour'])
    .execute();
  await db.schema.createIndex('usage_tag_day_tag').on('usage_tag_day').columns(['account_id', 'tag', 'day']).execute();

  const days = db.schema
    .createTable('usage_days')
    .addColumn('account_id', text, (column) => column.primaryKey().notNull())
    // The zone of the days: if it is not the account's, they are worthless.
    .addColumn('time_zone', text, (column) => column.notNull())
    // Start of the first day that is not in usage_day yet; all before it are.
    .addColumn('until', time, (column) => column.notNull());
  await strict(days, dialect).execute();

  const tags = db.schema
    .createTable('usage_tags')
    // One row: labels have been summed up from this hour on; 0: for all hours.
    .addColumn('since', time, (column) => column.notNull());
  await (dialect === 'sqlite' ? tags.modifyEnd(sql`strict`) : tags).execute();
  const newest = await db
    .selectFrom('usage_hour')
    .select((of) => of.fn.max('hour').as('hour'))
    .executeTakeFirst();
  const last: bigint | null = newest?.hour ?? null;
  await db
    .insertInto('usage_tags')
    .values({ since: last ?? 0 })
    .execute();
}

/** Like usage_hour: recomputed, never incremented. */
async function createSums(
  db: Kysely<Database>,
  dialect: SchemaDialect,
  name: string,
  key: readonly ('day' | 'hour' | 'tag' | 'model_id' | 'key_id')[],
): Promise<void> {
  const { text, money, time, count } = columnTypes(dialect);
  let table = db.schema.createTable(name).addColumn('account_id', text, (column) => column.notNull());
  for (const column of key)
    table = table.addColumn(column, column === 'day' || column === 'hour' ? time : text, (of) => of.notNull());
  for (const column of ['requests', 'prompt_tokens', 'cached_tokens', 'completion_tokens', 'reasoning_tokens'] as const)
    table = table.addColumn(column, count, (of) => of.notNull());
  table = table
    .addColumn('cost', money, (of) => of.notNull())
    .addColumn('uncharged', money, (of) => of.notNull())
    .addPrimaryKeyConstraint(`${name}_key`, ['account_id', ...key] as never);
  await strict(table, dialect).execute();
}
