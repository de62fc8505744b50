import { askForStatus } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import { localUrl } from '../config/public-url.ts';
import type { Context } from './context.ts';

/** Where the service of this configuration answers on this computer, and whether it runs. */
export async function serviceHere({ config }: Pick<Context, 'config'>): Promise<{
  readonly url: string;
  readonly isRunning: boolean;
}> {
  const status = await askForStatus(controlSocketPath(config.storage.directory)).catch(() => undefined);
  if (status !== undefined && status !== 'other' && status.localUrl !== undefined)
    return { url: status.localUrl, isRunning: true };
  return { url: localUrl(config.server.inference), isRunning: false };
}

/** The service that a user means, without `/v1`; undefined: the one of this computer. */
export const namedService = (given: string | undefined, environment: Pick<Context['environment'], 'variable'>) =>
  given ?? environment.variable('TOKENHOUSE_URL')?.replace(/\/+$/, '').replace(/\/v1$/, '');
