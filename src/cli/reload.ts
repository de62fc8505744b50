import { OperationError } from '../accounts/operation.ts';
import { ConfigError } from '../config/problem.ts';
import { askService } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import { lookLines } from './backend-lines.ts';
import type { Context } from './context.ts';

/** Makes the running service take over the configuration file. Exit 78 if the service refuses it. */
export async function reloadService({ config, print }: Context): Promise<number> {
  const { directory } = config.storage;
  const outcome = await askService(controlSocketPath(directory), { kind: 'reload' });
  if (outcome === undefined) {
    throw new OperationError(`No service is running on the data folder ${directory}, so there is nothing to reload.`);
  }
  switch (outcome.kind) {
    case 'refused':
      print.say(`The running service keeps configuration ${outcome.version}:`);
      throw new ConfigError(outcome.problems);
    case 'unchanged':
      print.result(outcome, [`Configuration ${outcome.version} is in force already; the file has not changed.`]);
      return 0;
    case 'reloaded':
      print.result(outcome, [
        `Configuration ${outcome.version} is in force:`,
        ...outcome.changes.map((change) => `  ${change}`),
        ...outcome.backends.flatMap(lookLines),
      ]);
      return 0;
  }
}
