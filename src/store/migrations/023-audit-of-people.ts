import { sql, type Kysely } from 'kysely';

/** Finds what users did to their own sign-in, and the outcomes of changes, without reading the whole log. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.createIndex('audit_log_actor').on('audit_log').columns(['actor_id', 'id']).execute();
  await db.schema
    .createIndex('audit_log_completed')
    .on('audit_log')
    .columns(['account_id', 'completes'])
    .where(sql.ref('completes'), 'is not', null)
    .execute();
}
