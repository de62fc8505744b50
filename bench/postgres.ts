import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { sql, type Kysely } from 'kysely';
import type { Database } from '../src/store/database.ts';
import { listPartitions, makePartitions } from '../src/store/postgres/partitions.ts';
import { PostgresServer } from '../tests/suites/postgres/server.ts';
import { Problem } from './problem.ts';

/** A server of its own, whose programs are found or fetched. `dispose` it. */
export async function startPostgres(root: string): Promise<PostgresServer> {
  const module = pathToFileURL(join(root, 'scripts', 'postgres.mjs')).href;
  const { postgresBinaries } = (await import(module)) as { postgresBinaries(): string };
  try {
    process.env['TOKENHOUSE_TEST_POSTGRES'] = postgresBinaries();
  } catch (error) {
    throw new Problem('There are no programs of a PostgreSQL server.', (error as Error).message);
  }
  return await PostgresServer.start();
}

/** A database without rows has one partition for all months that are over: gives each month since `fromMs` its own, as a service has that ran then. */
export async function partitionsSince(db: Kysely<Database>, fromMs: number): Promise<void> {
  for (const { name, fromMs: begin } of await listPartitions(db))
    if (begin === -Infinity) await sql`drop table ${sql.table(name)}`.execute(db);
  await makePartitions(db, fromMs);
}
