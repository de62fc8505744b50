import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

/** Brings a database of the step before to the next schema. */
export interface Step {
  /** Written out rather than derived from the description, which later versions change. */
  up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void>;
}
