import { OperationError } from '../accounts/operation.ts';
import type { OperationAnswer, OperationKind, OperationRequest } from '../accounts/operations.ts';
import { repositoriesOn } from '../store/repositories/repositories.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Database } from '../store/database.ts';
import { migrationNames, migrationsThatRan, pendingAfter, refuseNewer } from '../store/migrations/migrate.ts';
import { openStoreReader, readStoreTime } from '../app/stores.ts';
import { shownPlace } from '../config/sections/storage.ts';
import type { Kysely } from 'kysely';
import type { Config } from '../config/config.ts';
import type { Context } from './context.ts';

/** What a command reads from. */
export interface Reader {
  readonly repositories: Repositories;
  readonly db: Kysely<Database>;
  /** Milliseconds, by the database's clock. */
  readonly now: number;
  readonly config: Config;
}

/** Reads the database on a connection that cannot write, with or without a running service. */
export async function reading<Value>(
  { config }: Pick<Context, 'config'>,
  read: (reader: Reader) => Promise<Value>,
): Promise<Value> {
  const { storage } = config;
  const place = shownPlace(storage);
  const db = await openStoreReader(storage);
  if (db === undefined) throw noDatabase(place);
  try {
    const ran = await migrationsThatRan(db);
    if (ran.length === 0) throw noDatabase(place);
    refuseNewer(ran);
    if (pendingAfter(ran).length > 0)
      throw new OperationError(
        `The database at ${place} was last used by an earlier version, whose schema is ${ran.at(-1)!}; this version reads ` +
          `${migrationNames().at(-1)!}. Start the service once, which brings it up to date: npm start`,
      );
    return await read({ repositories: repositoriesOn(db), db, now: await readStoreTime(storage, db), config });
  } finally {
    await db.destroy();
  }
}

const noDatabase = (place: string): OperationError =>
  new OperationError(`There is no database at ${place} yet. Start the service once: npm start`);

/**
 * Makes a change. The operations, their schemas and the client of the control socket are loaded here, because a command that only
 * reads does not need them.
 */
export async function writing<Kind extends OperationKind>(
  context: Context,
  operation: OperationRequest<Kind>,
): Promise<OperationAnswer<Kind>> {
  const { change } = await import('./change.ts');
  return await change(context, operation);
}
