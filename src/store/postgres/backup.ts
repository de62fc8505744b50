import { spawn } from 'node:child_process';
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { sql, type Kysely } from 'kysely';
import pg from 'pg';
import { combineSignals } from '../../platform/combine-signals.ts';
import type { Database } from '../database.ts';
import { isUpToDate, migrate, migrationsThatRan, refuseNewer } from '../migrations/migrate.ts';
import { StoreError } from '../store-error.ts';
import { examineLedger, type Examined } from '../verify/examine.ts';
import { clientConfig, type PostgresAddress } from './connection.ts';
import { storeErrorOf } from './postgres-error.ts';
import { withSchemaLock } from './schema-lock.ts';
import { ServerToolError } from './server-tool-error.ts';

/** Parameters for running PostgreSQL's own programs. */
export interface ServerTools {
  readonly address: PostgresAddress;
  /** The environment, without this service's secrets; the programs are found by its `PATH`. */
  readonly variables: Readonly<Record<string, string>>;
  /** Ends a running program. */
  readonly signal: AbortSignal;
}

type Program = 'pg_dump' | 'pg_restore';

/** How long pg_dump waits for a table that a migration is changing. */
const lockWaitMs = 60_000;
/** Maximum error output kept of a program that fails. */
const saidCharactersMax = 2_000;

/**
 * Runs pg_dump to write the database's state at one moment, compressed, and examines the same state concurrently; neither blocks anyone.
 * `take` receives the bytes as a stream and must read all of them: the stream ends with an error unless pg_dump has succeeded. It can wait
 * for `verified` before it treats them as a backup.
 */
export async function dumpDatabase<Taken>(
  db: Kysely<Database>,
  tools: ServerTools,
  take: (archive: AsyncIterable<Uint8Array>, verified: Promise<unknown>) => Promise<Taken>,
): Promise<{ readonly examined: Examined; readonly taken: Taken }> {
  await refuseUnfit('pg_dump', db, tools);
  let made: { readonly examined: Examined; readonly taken: Taken } | undefined;
  let failure: unknown;
  // A read-only transaction's failure to end does not matter: the connection may have broken since.
  await db
    .transaction()
    .setAccessMode('read only')
    .setIsolationLevel('repeatable read')
    .execute(async (moment) => {
      try {
        made = await dumpMoment(moment, tools, take);
      } catch (error) {
        failure = error;
      }
    })
    .catch((error: unknown) => (failure ??= storeErrorOf(error)));
  if (made === undefined) throw failure;
  return made;
}

async function dumpMoment<Taken>(
  moment: Kysely<Database>,
  tools: ServerTools,
  take: (archive: AsyncIterable<Uint8Array>, verified: Promise<unknown>) => Promise<Taken>,
): Promise<{ readonly examined: Examined; readonly taken: Taken }> {
  // No statement runs on this connection while the last bytes are sent.
  await sql`set local idle_in_transaction_session_timeout = 0`.execute(moment);
  const snapshot = sql<{ id: string; schema: string }>`select pg_export_snapshot() as id, current_schema() as schema`;
  const { id, schema } = (await snapshot.execute(moment)).rows[0]!;
  const stop = new AbortController();
  const words = ['--format=custom', `--schema=${pattern(schema)}`, `--snapshot=${id}`];
  const archive = outputOf('pg_dump', [...words, '--no-password', `--lock-wait-timeout=${lockWaitMs}`], {
    ...tools,
    signal: combineSignals([tools.signal, stop.signal]),
  });
  const examining = examineLedger(moment).catch((error: unknown) => {
    throw storeErrorOf(error);
  });
  const both = [examining, take(archive, examining)] as const;
  try {
    const [examined, taken] = await Promise.all(both);
    return { examined, taken };
  } catch (error) {
    stop.abort(error);
    await Promise.allSettled(both);
    throw error;
  }
}

/**
 * Runs pg_restore to put an archive into an empty database, in one transaction, and examines the result. If that is wrong, or `accept`
 * refuses it, the database is emptied again. No service can start on it meanwhile.
 */
export async function restoreDump(
  db: Kysely<Database>,
  tools: ServerTools,
  file: string,
  accept: (examined: Examined) => void,
): Promise<Examined> {
  await refuseUnfit('pg_restore', db, tools);
  return await withSchemaLock(db, async (connection) => {
    const schema = await emptySchema(connection);
    await refuseForeignArchive(file, schema, tools);
    const words = ['--single-transaction', '--exit-on-error', '--no-owner', '--no-privileges', '--no-password'];
    const { database } = clientOf(tools.address);
    // Piped through this process, so that pg_restore and its transaction end when this process is killed.
    await feed('pg_restore', [...words, `--schema=${schema}`, `--dbname=${database}`], createReadStream(file), tools);
    try {
      await sql`analyze`.execute(connection);
      const examined = await examineRestored(connection);
      const { length: count } = examined.differences;
      if (count > 0) throw new StoreError('unusable', `The backup does not verify: ${count} differences.`);
      accept(examined);
      return examined;
    } catch (error) {
      await dropAll(connection, schema);
      throw error;
    }
  });
}

/** The size of the database: an archive of it is smaller, except for rare content. */
export async function databaseBytes(db: Kysely<Database>): Promise<bigint> {
  const size = sql<{ bytes: bigint }>`select pg_database_size(current_database()) as bytes`;
  return (await size.execute(db)).rows[0]!.bytes;
}

/** Verified as this version will read it; an archive of an earlier version stays readable for that version. */
async function examineRestored(db: Kysely<Database>): Promise<Examined> {
  refuseNewer(await migrationsThatRan(db));
  if (await isUpToDate(db)) return await examineLedger(db);
  let examined: Examined | undefined;
  const undone = new Error('undone');
  try {
    await db.transaction().execute(async (transaction) => {
      await migrate(transaction, 'postgres');
      examined = await examineLedger(transaction);
      throw undone;
    });
  } catch (error) {
    if (error !== undone) throw error;
  }
  return examined!;
}

/** The schema for the tables. Refuses if it is not empty. */
async function emptySchema(db: Kysely<Database>): Promise<string> {
  const { rows } = await sql<{ schema: string | null; relations: bigint }>`
    select current_schema() as schema,
      (select count(*) from pg_class where relnamespace = current_schema()::regnamespace) as relations`.execute(db);
  const { schema, relations } = rows[0]!;
  if (schema === null || relations > 0n)
    throw new StoreError(
      'unusable',
      schema === null
        ? 'The database has no schema on its search_path.'
        : 'The database is not empty, and a backup of PostgreSQL is put into an empty one only. Create one, and set `storage` to it.',
    );
  return schema;
}

/** Checks an archive before running anything from it. Its table of contents has a line for each table's rows. */
async function refuseForeignArchive(file: string, schema: string, tools: ServerTools): Promise<void> {
  const listed = await textOf('pg_restore', ['--list', file], tools);
  const [, found] = / TABLE DATA (\S+) kysely_migration /.exec(listed) ?? [];
  if (found === undefined) throw new StoreError('unusable', 'It is no backup of a database of Tokenhouse.');
  if (found !== schema)
    throw new StoreError(
      'unusable',
      `Its tables are in the schema ${found}, and those of this database would be in ${schema}. Set the search_path of the user.`,
    );
}

/** pg_dump takes a pattern, in which quotes make a name literal. */
const pattern = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** Drops everything that was just restored. */
async function dropAll(db: Kysely<Database>, schema: string): Promise<void> {
  const names = sql<{ kind: string; name: string }>`
    select 'table' as kind, oid::regclass::text as name from pg_class
      where relnamespace = ${schema}::regnamespace and relkind in ('r', 'p') and not relispartition
    union all select 'function', oid::regprocedure::text from pg_proc where pronamespace = ${schema}::regnamespace`;
  const { rows } = await names.execute(db);
  await db.transaction().execute(async (transaction) => {
    for (const { kind, name } of rows) await sql.raw(`drop ${kind} ${name} cascade`).execute(transaction);
  });
}

/** Refuses an older program than the server: a program reads only what servers up to its own version have written. */
async function refuseUnfit(program: Program, db: Kysely<Database>, tools: ServerTools): Promise<void> {
  const { rows } = await sql<{ version: string }>`select current_setting('server_version_num') as version`.execute(db);
  const server = Math.floor(Number(rows[0]!.version) / 10_000);
  const said = await textOf(program, ['--version'], tools);
  const own = Number(/\(PostgreSQL\) (\d+)/.exec(said)?.[1]);
  if (own >= server) return;
  throw new ServerToolError(
    `${program} is of version ${own || said.trim()}, and the server is of version ${server}: it has to be of the server's version or a later one.`,
  );
}

const clientOf = (address: PostgresAddress): pg.Client => new pg.Client(clientConfig(address));

/**
 * The server's address, user and password as used by the service, passed in PostgreSQL's environment variables, because arguments are
 * public.
 */
function connectionVariables(address: PostgresAddress): Readonly<Record<string, string>> {
  const { host, port, user, database, password } = clientOf(address);
  const parameters = new URL(address.url).searchParams;
  const encrypted = parameters.get('sslmode') ?? (parameters.get('ssl') === 'true' ? 'require' : undefined);
  const given = {
    PGHOST: host,
    PGPORT: String(port),
    PGUSER: user,
    PGDATABASE: database,
    PGPASSWORD: typeof password === 'string' ? password : undefined,
    PGOPTIONS: parameters.get('options') ?? undefined,
    // The driver's name for not verifying the certificate.
    PGSSLMODE: encrypted === 'no-verify' ? 'require' : encrypted,
    PGSSLROOTCERT: parameters.get('sslrootcert') ?? undefined,
    PGSSLCERT: parameters.get('sslcert') ?? undefined,
    PGSSLKEY: parameters.get('sslkey') ?? undefined,
    PGAPPNAME: 'tokenhouse',
    LC_MESSAGES: 'C',
  };
  return Object.fromEntries(Object.entries(given).filter((one): one is [string, string] => one[1] !== undefined));
}

interface Running {
  readonly stdin: NodeJS.WritableStream | null;
  readonly stdout: Readable;
  /** Rejects, with the program's error output, unless it succeeds. */
  readonly ended: Promise<void>;
  kill(): void;
}

function run(program: Program, words: readonly string[], stdin: 'ignore' | 'pipe', tools: ServerTools): Running {
  const { address, variables, signal } = tools;
  signal.throwIfAborted();
  const child = spawn(program, words, {
    env: { ...variables, ...connectionVariables(address) },
    stdio: [stdin, 'pipe', 'pipe'],
  });
  let said = '';
  child.stderr!.on('data', (text: Buffer) => {
    if (said.length < saidCharactersMax) said += text.toString();
  });
  const kill = (): void => void child.kill('SIGKILL');
  signal.addEventListener('abort', kill);
  const ended = new Promise<void>((resolve, reject) => {
    child.once('error', (error) => reject(missing(program, error)));
    child.once('close', (code) => {
      signal.removeEventListener('abort', kill);
      if (signal.aborted) reject(signal.reason);
      else if (code === 0) resolve();
      else reject(new ServerToolError(`${program} has failed: ${saidBy(program, said)}`));
    });
  });
  ended.catch(() => {}); // the reader of its output gets the error
  return { stdin: child.stdin, stdout: child.stdout!, ended, kill };
}

function missing(program: Program, error: NodeJS.ErrnoException): ServerToolError {
  const reason = error.code === 'ENOENT' ? 'is not on the PATH' : `cannot be run (${error.code ?? error.message})`;
  return new ServerToolError(`${program} ${reason}.`);
}

const saidBy = (program: Program, said: string): string =>
  said
    .slice(0, saidCharactersMax)
    .split('\n')
    .map((line) => line.replace(`${program}: error: `, '').trim())
    .filter((line) => line !== '')
    .join('; ') || 'it said nothing';

/** The program's output as a stream; stopping the iteration ends the program. */
async function* outputOf(
  program: Program,
  words: readonly string[],
  tools: ServerTools,
): AsyncGenerator<Uint8Array, void> {
  const { stdout, ended, kill } = run(program, words, 'ignore', tools);
  try {
    yield* stdout as AsyncIterable<Uint8Array>;
    await ended;
  } finally {
    kill();
    await ended.catch(() => {});
  }
}

/** Collects short output. */
async function textOf(program: Program, words: readonly string[], tools: ServerTools): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const part of outputOf(program, words, tools)) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function feed(program: Program, words: readonly string[], source: Readable, tools: ServerTools): Promise<void> {
  const { stdin, stdout, ended, kill } = run(program, words, 'pipe', tools);
  stdout.resume();
  const given = pipeline(source, stdin!);
  try {
    // A failing program stops reading its input; report its failure, not the broken pipe.
    await Promise.all([ended, given.catch(() => ended)]);
  } finally {
    kill();
    source.destroy();
    await given.catch(() => {});
  }
}
