import { CommandFailure } from './command-failure.ts';
import { exitCodes } from './failure.ts';

/** SIGINT and SIGTERM stop the work, so that it can clean up. `shown` names its subject. */
export async function stoppable<T>(shown: string, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const onSignal = (): void => stop.abort(stopped(shown));
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    return await act(stop.signal);
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}

const stopped = (shown: string): CommandFailure =>
  new CommandFailure({
    what: [`The transfer of ${shown} was stopped.`],
    why: 'a signal ended it',
    repair: ['start it again'],
    exitCode: exitCodes.unavailable,
  });
