import { existsSync } from 'node:fs';

import { OperationError, operate } from '../accounts/operations.ts';
import type { Operation, OperationAnswer } from '../accounts/operations.ts';
import { openSecret } from '../accounts/secret.ts';
import { askRunningService } from '../control/client.ts';
import { controlSocketPath } from '../control/socket-path.ts';
import { deskOn } from '../store/operations.ts';
import type { Desk } from '../store/operations.ts';
import { openReadOnly } from '../store/sqlite/dialect.ts';
import { openSqliteStore } from '../store/sqlite/store.ts';
import { uuidMaker } from '../ids/uuid.ts';
import type { Context } from './context.ts';

/** Reads the database on a connection that cannot write, beside a running service or without one. */
export async function reading<Value>(
  { config }: Context,
  read: (desk: Desk, db: ReturnType<typeof openReadOnly>) => Promise<Value>,
): Promise<Value> {
  const { path } = config.storage;
  if (!existsSync(path))
    throw new OperationError(`There is no database at ${path} yet. Start the service once: npm start`);
  const db = openReadOnly(path);
  try {
    return await read(deskOn(db), db);
  } finally {
    await db.destroy();
  }
}

/** Changes something: through the service that owns the database, or as its owner when none runs. */
export async function writing({ config, environment, print }: Context, operation: Operation): Promise<OperationAnswer> {
  const { path, directory } = config.storage;
  const answer = await askRunningService(controlSocketPath(directory), operation);
  if (answer !== undefined) return answer;
  const fatal = (error: Error): void => print.say(error.message);
  const store = await openSqliteStore({ file: path, onFatal: fatal });
  try {
    const secret = openSecret({
      fromEnvironment: environment.secret?.reveal(),
      dataFolder: directory,
      warn: print.say,
    });
    return await operate(operation, {
      ledger: store.ledger,
      desk: store.desk,
      secret,
      newId: uuidMaker(),
      directory: undefined,
    });
  } finally {
    await store.close();
  }
}
