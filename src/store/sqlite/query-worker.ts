/** The thread for everything that is not the hot path: brings the schema up to date at start, then answers one request at a time. */
import '../../platform/stack-traces.ts';

import { parentPort, workerData } from 'node:worker_threads';
import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { beginFile, unreadyFiles, type AmongReplicas } from '../repositories/files.ts';
import { migrate } from '../migrations/migrate.ts';
import { repositoriesOn, type Repositories, type RepositoryOperation } from '../repositories/repositories.ts';
import { StoreError, toFailure, type StoreFailure } from '../store-error.ts';
import { closeConnection, openConnection, refuseDamaged, sqliteCode, type Connection } from './connection.ts';
import { kyselyOn } from './dialect.ts';

export type QueryWorkerStarted = { readonly migrated: readonly string[] } | { readonly failure: StoreFailure };

export interface QueryCall {
  readonly id: number;
  readonly name: RepositoryOperation;
  readonly request: unknown;
  /** The caller, where several processes work on the books through this one. */
  readonly replica?: Uint8Array;
}

export type QueryReply =
  { readonly id: number; readonly value: unknown } | { readonly id: number; readonly failure: StoreFailure };

const port = parentPort!;
const { file } = workerData as { readonly file: string };

try {
  const connection = openConnection(file);
  refuseDamaged(connection, file);
  const db = kyselyOn(connection);
  const migrated = await migrate(db, 'sqlite');
  serve(db, connection);
  port.postMessage({ migrated } satisfies QueryWorkerStarted);
} catch (error) {
  port.postMessage({ failure: toFailure(startFailure(error)) } satisfies QueryWorkerStarted);
}

function serve(db: Kysely<Database>, connection: Connection): void {
  const own = repositoriesOn(db);
  const repositoriesFor = (replica: Uint8Array | undefined): Repositories =>
    replica === undefined ? own : among(own, db, replica);
  let last: Promise<void> = Promise.resolve();
  port.on('message', (call: QueryCall | 'close') => {
    last = last.then(async () => {
      if (call !== 'close') {
        port.postMessage(await answer(repositoriesFor(call.replica), call));
        return;
      }
      closeConnection(connection);
      port.close();
    });
  });
}

/** For one of several processes: what arrives at the others is theirs. Calls run one after the other, so no queue is needed. */
function among(repositories: Repositories, db: Kysely<Database>, replica: Uint8Array): Repositories {
  const others: AmongReplicas = { replica, queue: () => Promise.resolve() };
  return {
    ...repositories,
    beginFile: (request) => beginFile(db, request, others),
    unreadyFiles: (request) => unreadyFiles(db, request, others),
  };
}

async function answer(repositories: Repositories, { id, name, request }: QueryCall): Promise<QueryReply> {
  try {
    return { id, value: await (repositories[name] as (request: unknown) => Promise<unknown>)(request) };
  } catch (error) {
    return { id, failure: toFailure(queryFailure(error)) };
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

function startFailure(error: unknown): unknown {
  if (error instanceof StoreError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new StoreError('unusable', `${file} cannot be used: ${message}`, error);
}
