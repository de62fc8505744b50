/** `npm run bench db-copy [ROWS]`: how long `tokenhouse db copy` takes for that many rows of usage, from SQLite to PostgreSQL. */
import { join } from 'node:path';
import { sql } from 'kysely';

import { openConnection } from '../src/store/sqlite/connection.ts';
import { kyselyOn } from '../src/store/sqlite/dialect.ts';
import { root } from '../tests/support/repository.ts';
import { noFeatures, scriptedModel, TestService } from '../tests/support/service.ts';
import { runCommand, say } from './command.ts';
import { fillUsage } from './fill-usage.ts';
import { startPostgres } from './postgres.ts';

await runCommand(main, 'npm run bench db-copy [ROWS]');

async function main([rows = '1000000']: readonly string[]): Promise<void> {
  const server = await startPostgres(root);
  const service = new TestService({
    config: scriptedModel('- { say: [{ text: "Paris." }] }', { settings: noFeatures }),
  });
  try {
    const database = join(service.folder, 'data', 'tokenhouse.db');
    await service.start();
    await service.stop();
    const db = kyselyOn(openConnection(database));
    const run = (text: string): Promise<unknown> => sql.raw(text).execute(db);
    for (const pragma of ['synchronous = off', 'temp_store = memory']) await run(`pragma ${pragma}`);
    const filled = await fillUsage({
      ...({ name: 'SQLite', dialect: 'sqlite', db, run, rows: Number(rows) } as const),
      largestAccount: service.accountId,
    });
    await db.destroy();
    say(filled);
    const there = await server.createDatabase();
    await timed('to PostgreSQL', () => service.command('db', 'copy', '--to', there));
  } finally {
    await service.dispose();
    await server.dispose();
  }
}

async function timed(
  what: string,
  work: () => Promise<{ code: number | null; stdout: string; stderr: string }>,
): Promise<void> {
  const before = performance.now();
  const { code, stdout, stderr } = await work();
  if (code !== 0) throw new Error(stdout + stderr);
  process.stdout.write(`${what}: ${((performance.now() - before) / 1000).toFixed(1)} s\n${stdout}`);
}
