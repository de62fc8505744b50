import { errorTable } from '../platform/errors.ts';
import type { ErrorCode, ErrorRow } from '../platform/errors.ts';
import { CommandFailure } from './command-failure.ts';
import { exitCodes } from './failure.ts';

/** Sends a request; a failure to reach the service becomes a readable message. */
export async function reach(url: string, path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(`${url}${path}`, init);
  } catch (error) {
    if (init.signal?.aborted === true && (init.signal.reason as Error).name !== 'TimeoutError') throw error;
    const { cause } = error as { readonly cause?: { readonly code?: string } };
    throw new CommandFailure({
      what: [`No service answers at ${url}.`],
      why: cause?.code === 'ECONNREFUSED' ? 'nothing listens there' : (cause?.code ?? 'it took too long'),
      repair: ['npm start', 'tokenhouse doctor', 'name another one: tokenhouse chat --url http://host:port'],
      exitCode: exitCodes.unavailable,
    });
  }
}

export const notOurs = (url: string): CommandFailure =>
  new CommandFailure({
    what: [`The server at ${url} lists no models.`],
    why: 'it may be another program',
    repair: ['tokenhouse doctor'],
    exitCode: exitCodes.unavailable,
  });

export const noKey = (why = 'every answer is charged to the account of a key'): CommandFailure =>
  new CommandFailure({
    what: ['There is no API key.'],
    why,
    repair: ['export TOKENHOUSE_KEY="$(tokenhouse keys create --name chat)"'],
    exitCode: exitCodes.refused,
  });

/** Reports an error object of the API (specification §7.1): its message, what its code means, and what to do. */
export function refusal(error: unknown, url: string): CommandFailure {
  const {
    code,
    message,
    request_id: requestId,
  } = (error ?? {}) as {
    readonly code?: string;
    readonly message?: string;
    readonly request_id?: string;
  };
  if (code === undefined || !Object.hasOwn(errorTable, code)) return notOurs(url);
  const row: ErrorRow = errorTable[code as ErrorCode];
  const request = requestId === undefined ? '' : ` (${requestId})`;
  return new CommandFailure({
    what: [`${code}: ${message ?? row.meaning}${request}`],
    why: row.meaning,
    repair: [`tokenhouse explain ${code}`, row.remedy],
    exitCode: row.status >= 500 ? exitCodes.unavailable : exitCodes.refused,
  });
}
