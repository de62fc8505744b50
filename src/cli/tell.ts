import { OperationError } from '../accounts/operation.ts';
import { tellByRunningService } from '../control/client.ts';
import { controlSocketPath } from '../control/socket-path.ts';
import type { TellWish } from '../control/tell.ts';
import type { Context } from './context.ts';

/** Has the service of this folder tell customers something; it alone has what that takes. */
export async function tellRunning({ config, print }: Context, wish: TellWish): Promise<number> {
  const told = await tellByRunningService(controlSocketPath(config.storage.directory), wish);
  if (told === undefined) throw new OperationError('No service runs here. Start it: npm start');
  print.result(told, [told.done]);
  return 0;
}
