import { OperationError } from '../accounts/operation.ts';
import { notifyThroughService } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import type { NotificationRequest } from '../app/control/notification-request.ts';
import type { Context } from './context.ts';

/** Makes the service of this folder notify customers; only the service has what that takes. */
export async function askRunning({ config, print }: Context, input: NotificationRequest): Promise<number> {
  const reported = await notifyThroughService(controlSocketPath(config.storage.directory), input);
  if (reported === undefined) throw new OperationError('No service runs here. Start it: npm start');
  print.result(reported, [reported.done]);
  return 0;
}
