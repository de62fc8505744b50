import type { IncomingHttpHeaders } from 'node:http';

import { hashKey, parseKey } from '../accounts/key.ts';
import { keyAccess, readLimits } from '../accounts/key-limits.ts';
import { presentedKey } from '../accounts/presented-key.ts';
import { ApiError } from '../platform/errors.ts';
import { notThere } from './input.ts';
import { roles } from './route.ts';
import type { AccountRoute, AccountScope, Principal, Role } from './route.ts';
import type { AccountServices } from './services.ts';
import { refuseWhileViewing, viewingRefusal } from './viewing.ts';

/** A signed-in user, from their session. */
export type SignedIn = Omit<Extract<Principal, { readonly kind: 'user' }>, 'kind'>;

/** Sessions of users, and their accounts. */
export interface Sessions {
  /** Finds a user by the `Cookie` header; undefined if there is no session, or it has ended. */
  signedIn(cookie: string): Promise<SignedIn | undefined>;
  /** The role of a user in an account; without `accountId`, in the first that they joined. */
  membership(userId: string, accountId: string | undefined): Promise<AccountScope | undefined>;
}

/** Step-up: how long after a proof of identity users need not repeat it. */
export const provedForMs = 15 * 60_000;

/**
 * The sender of a request: a management key (`Authorization: Bearer` or `x-api-key`), or else a user by their session. Throws
 * `invalid_api_key` 401; `http_403` for a key that manages nothing, or may not be used from this address.
 */
export async function senderOf(
  headers: IncomingHttpHeaders,
  address: string,
  services: AccountServices,
): Promise<Principal> {
  const presented = presentedKey(headers);
  if (presented !== undefined) return await senderOfKey(presented, address, services);
  const signedIn = headers.cookie === undefined ? undefined : await services.users.signedIn(headers.cookie);
  return signedIn === undefined ? { kind: 'nobody' } : { kind: 'user', ...signedIn };
}

async function senderOfKey(presented: string, address: string, { operations }: AccountServices): Promise<Principal> {
  const { repositories, secret, now } = operations;
  const key = parseKey(presented);
  // An invalid key costs no look-up.
  const found =
    key === undefined ? undefined : await repositories.findPresentedKey({ hash: hashKey(key, secret), at: now() });
  if (found === undefined) throw new ApiError('invalid_api_key', 'This key does not exist or has been revoked.');
  const role = roles.find((known) => known === found.role);
  if (role === undefined)
    throw new ApiError('http_403', 'This is an inference key. The account API needs a management key.');
  if (!keyAccess(readLimits(found.limits)).mayComeFrom(address))
    throw new ApiError('http_403', 'This key may not be used from the address that the request comes from.');
  return {
    kind: 'key',
    keyId: found.id,
    name: found.name,
    accountId: found.accountId,
    role,
    isOperator: found.isOperator,
    isSuspended: found.accountStatus !== 'active',
  };
}

/**
 * Checks access to the route, and returns the account that the request is about. Throws `missing_api_key` 401, `http_403`, and
 * `http_404` for an account that the sender does not belong to, as for a nonexistent one.
 */
export async function admit(
  route: AccountRoute,
  principal: Principal,
  named: string | undefined,
  { users, operations }: AccountServices,
): Promise<AccountScope | undefined> {
  const { access } = route;
  if (access === 'anyone') return undefined;
  if (principal.kind === 'nobody')
    throw new ApiError('missing_api_key', 'Sign in, or send a management key as `Authorization: Bearer`.');
  if (principal.kind === 'user' && principal.viewing !== undefined) refuseWhileViewing(route, principal.viewing);
  if (access === 'user') {
    if (principal.kind !== 'user') throw new ApiError('http_403', 'This route is for people who are signed in.');
  } else if (access === 'operator') {
    if (!principal.isOperator) throw new ApiError('http_403', 'This route is for the operator of the server.');
    if (principal.kind === 'key' && principal.isSuspended)
      throw new ApiError('http_403', 'The account of this key is suspended, so the key cannot be used for operations.');
  }
  if (route.stepUp === true && principal.kind === 'user' && operations.now() - principal.provedAt > provedForMs)
    throw new ApiError('http_403', 'Sign in again to confirm who you are, then repeat this.', {
      extra: { step_up_required: true },
    });
  if (access === 'user' || access === 'operator') return undefined;

  const scope = await scopeOf(principal, named, users);
  if (!access.includes(scope.role))
    throw new ApiError('http_403', `This needs the role ${listOf(access)}; yours is ${scope.role}.`);
  if (scope.isSuspended) refuseSuspended(route, principal);
  return scope;
}

/**
 * A suspended account can be read: its usage, its debts, its invoices. No sender can change it until it is revived; routes with
 * step-up, such as the export, are for users only, because a key does not prove an identity.
 */
function refuseSuspended({ method, stepUp, evenSuspended }: AccountRoute, principal: Principal): void {
  const isAllowed = method === 'get' || evenSuspended === true;
  if (isAllowed && (principal.kind === 'user' || stepUp !== true)) return;
  throw new ApiError(
    'http_403',
    'This account is suspended: it can be read but not changed. Write to the operator of this server.',
  );
}

async function scopeOf(
  principal: Exclude<Principal, { readonly kind: 'nobody' }>,
  named: string | undefined,
  users: Sessions,
): Promise<AccountScope> {
  if (principal.kind === 'key') {
    if (named !== undefined && named !== principal.accountId) throw notThere();
    return { id: principal.accountId, role: principal.role, isSuspended: principal.isSuspended };
  }
  const { viewing } = principal;
  if (viewing !== undefined) {
    // The same for an account that does not exist: another tab still asks for the one that it showed before.
    if (named !== undefined && named !== viewing.accountId) throw viewingRefusal(viewing);
    return { id: viewing.accountId, role: 'viewer', isSuspended: viewing.isSuspended };
  }
  const membership = await users.membership(principal.userId, named);
  if (membership !== undefined) return membership;
  if (named !== undefined) throw notThere();
  throw new ApiError('http_403', 'You do not belong to an account yet.');
}

const listOf = (access: readonly Role[]): string =>
  access.length === 1 ? access[0]! : `${access.slice(0, -1).join(', ')} or ${access.at(-1)}`;
