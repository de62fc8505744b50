import type { Caller } from '../../accounts/directory.ts';
import { presentedKey } from '../../accounts/presented-key.ts';
import { ApiError } from '../../platform/errors.ts';
import type { Headers } from '../dialects/dialect.ts';
import { checkAccess } from '../pipeline/access.ts';
import type { Exchange } from './exchange.ts';

/**
 * Returns the caller, if a key is presented: synchronously if it is in memory, otherwise once it has been read. From then on, changes of
 * the key or its account reach the request: nothing is awaited between finding the key active and claiming the request for it.
 */
export function callerOf(exchange: Exchange): Caller | undefined | Promise<Caller | undefined> {
  const found = knownCaller(exchange);
  return found === 'cold' ? coldCaller(exchange) : found;
}

function knownCaller(exchange: Exchange): Caller | 'cold' | undefined {
  const found = authenticate(exchange);
  if (typeof found !== 'object') return found;
  exchange.claim(found);
  checkAccess(found, exchange);
  return found;
}

/** The database may stop answering while a key is read, and the key be evicted before it answers again. */
const coldTriesMax = 3;

async function coldCaller(exchange: Exchange): Promise<Caller | undefined> {
  const { services } = exchange.host;
  const { address } = exchange;
  for (let tries = 0; tries < coldTriesMax; tries++) {
    await services.keyLookUps.read(presentedKey(exchange.headers) ?? '', address);
    if (services.feed.isStale) await caughtUp(exchange);
    const found = knownCaller(exchange);
    if (found !== 'cold') return found;
  }
  throw databaseSilent();
}

/**
 * Admits no one from memory alone when this process may have missed a revoked key: checks once more, or refuses (money, "A database that
 * does not answer").
 */
export async function caughtUp({ headers, host }: Exchange): Promise<void> {
  const { feed } = host.services;
  if (!feed.isStale || presentedKey(headers) === undefined || (await feed.freshen())) return;
  throw databaseSilent();
}

const databaseSilent = (): ApiError =>
  new ApiError('internal_error', 'The database does not answer.', { retryAfterSeconds: 1 });

/** Specification §5.1 and §5.4; `undefined` when no credentials were sent; `cold`: the key has to be read first. */
function authenticate(exchange: Exchange): Caller | 'cold' | undefined {
  const presented = presentedKey(exchange.headers);
  if (presented === undefined) return undefined;
  const found = exchange.host.services.directory.find(presented, exchange);
  if (found === 'cold') return found;
  if (found === undefined || found === 'malformed') {
    throw new ApiError(
      'invalid_api_key',
      found === 'malformed'
        ? 'The API key is malformed: check that it was copied completely, without spaces.'
        : 'The API key does not match a live key: it may be revoked, or belong to another server.',
    );
  }
  return found;
}

export function requireCaller(caller: Caller | undefined): Caller {
  if (caller !== undefined) return caller;
  throw new ApiError(
    'missing_api_key',
    'The request carries no API key. Send Authorization: Bearer <key>, or x-api-key: <key>.',
  );
}

/**
 * Specification §4.2.6: only the exact value of the header counts; everything else is refused rather than interpreted. An account that
 * requires zero data retention has it for every request, as if the header were set.
 */
export function zdrRequired(headers: Headers, { account, key }: Caller): boolean {
  const value = headers['service-zdr'];
  if (value === undefined) {
    if (account.zdrRequired === true) return true;
    if (key.access?.zdrOnly !== true) return false;
    throw new ApiError('http_403', 'This key is only for requests with the header Service-ZDR: required.', {
      param: 'Service-ZDR',
    });
  }
  if (value === 'required') return true;
  throw new ApiError('invalid_zdr_header', "The header Service-ZDR must be 'required' or absent.", {
    param: 'Service-ZDR',
  });
}
