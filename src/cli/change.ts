import { commandLine } from '../accounts/actor.ts';
import { operate } from '../accounts/operations.ts';
import type { OperationAnswer, OperationKind, OperationRequest } from '../accounts/operations.ts';
import { openSecret } from '../accounts/secret.ts';
import { askRunningService } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import { openStore } from '../app/stores.ts';
import type { Store } from '../app/stores.ts';
import { uuidMaker } from '../platform/ids/uuid.ts';
import type { Context } from './context.ts';

/**
 * Makes a change: through the service of this folder, or on the database itself when none runs here. In that case `afterwards` does
 * what the service would then do by itself.
 */
export async function change<Kind extends OperationKind>(
  { config, environment, print }: Context,
  operation: OperationRequest<Kind>,
  afterwards?: (store: Store) => Promise<void>,
): Promise<OperationAnswer<Kind>> {
  const { directory } = config.storage;
  const answer = await askRunningService(controlSocketPath(directory), operation);
  if (answer !== undefined) return answer;
  const fatal = (error: Error): void => print.say(error.message);
  const store = await openStore(config.storage, { onFatal: fatal });
  try {
    const secret = openSecret({
      fromEnvironment: environment.secret?.reveal(),
      dataFolder: directory,
      warn: print.say,
    });
    const done = await operate(operation, {
      ledger: store.ledger,
      repositories: store.repositories,
      secret,
      newId: uuidMaker(() => store.now()),
      now: () => store.now(),
      actor: commandLine,
    });
    await afterwards?.(store);
    return done;
  } finally {
    await store.close();
  }
}
