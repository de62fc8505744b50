/** The thread for everything outside the hot path: brings the schema up to date at start, then answers one request at a time. */
import '../../platform/stack-traces.ts';

import type { Kysely } from 'kysely';
import { endThread, serveParent } from '../../platform/rpc/thread.ts';
import type { Database } from '../database.ts';
import { carryOut } from '../repositories/forwarded.ts';
import { migrate } from '../migrations/migrate.ts';
import { repositoriesOn, type Repositories, type RepositoryOperation } from '../repositories/repositories.ts';
import { StoreError } from '../store-error.ts';
import { closeConnection, openConnection, refuseDamaged, sqliteCode, type Connection } from './connection.ts';
import { kyselyOn } from './dialect.ts';

/** The main thread's calls: `start` first, `close` last. */
export type QueryCalls = {
  /** Returns the names of the migrations that ran. */
  readonly start: (file: string) => readonly string[];
  readonly close: (nothing: null) => null;
} & Asked;

/** The operations of the repositories. */
type Asked = { readonly [Name in RepositoryOperation]: (request: unknown) => unknown };

const rpc = serveParent<QueryCalls>({ handlers: { start, close: endThread } });

async function start(file: string): Promise<readonly string[]> {
  let connection: Connection | undefined;
  try {
    connection = openConnection(file);
    refuseDamaged(connection, file);
    const db = kyselyOn(connection);
    const migrated = await migrate(db, 'sqlite');
    serve(db, connection);
    return migrated;
  } catch (error) {
    connection?.close();
    throw startFailure(error, file);
  }
}

/** Serves one call at a time, because calls share the connection, and some of them are transactions. */
function serve(db: Kysely<Database>, connection: Connection): void {
  const own = repositoriesOn(db);
  let last: Promise<unknown> = Promise.resolve();
  const inOrder = <Value>(work: () => Value | Promise<Value>): Promise<Value> => {
    const turn = last.then(work);
    last = turn.catch(() => {});
    return turn;
  };
  const asked = Object.keys(own).map((name) => [
    name,
    (request: unknown) => inOrder(() => answer(own, name as RepositoryOperation, request)),
  ]);
  rpc.handle({
    ...(Object.fromEntries(asked) as Asked),
    close: () =>
      inOrder(() => {
        closeConnection(connection);
        return endThread();
      }),
  });
}

async function answer(repositories: Repositories, name: RepositoryOperation, request: unknown): Promise<unknown> {
  try {
    return await carryOut(repositories, name, request);
  } catch (error) {
    throw queryFailure(error);
  }
}

function queryFailure(error: unknown): unknown {
  const message = error instanceof Error ? error.message : String(error);
  switch (sqliteCode(error)) {
    case 5:
      return new StoreError('busy', message, error);
    case 13:
      return new StoreError('full', message, error);
    case 19:
      return new StoreError('conflict', message, error);
  }
  return error;
}

function startFailure(error: unknown, file: string): StoreError {
  if (error instanceof StoreError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new StoreError('unusable', `${file} cannot be used: ${message}`, error);
}
