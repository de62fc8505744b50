import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
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
