import Type from 'typebox';
import type { TSchema } from 'typebox';

import { mailAddressLengthMax, mailAddressPattern } from '../../accounts/mail-address.ts';
import { ApiError } from '../../platform/errors.ts';
import { endViews } from '../../accounts/account-views.ts';
import type { Auth } from '../../accounts/users/auth.ts';
import type { SignedInPerson } from '../../accounts/users/users.ts';
import { addressHeaderName, sessionCookie } from '../../accounts/users/cookies.ts';
import { deadLink } from '../../accounts/users/users.ts';
import { operationsOf } from '../operations-of.ts';
import { Reply } from '../route.ts';
import type { Call } from '../route.ts';

export const email = Type.String({ maxLength: mailAddressLengthMax, pattern: mailAddressPattern });
export const password = Type.String({ minLength: 1, maxLength: 200, description: '10 to 200 characters.' });
export const personName = Type.String({
  minLength: 1,
  maxLength: 100,
  pattern: '^[^\\u0000-\\u001f\\u007f<>]+$',
  description: 'The name of the person, as others see it.',
});
export const linkToken = Type.String({
  pattern: '^[A-Za-z0-9._-]{16,1000}$',
  description: 'The part of the link after `#`.',
});

export const done = { status: 200, description: 'Done.', schema: Type.Object({ done: Type.Literal(true) }) } as const;

export const personSchema = Type.Object({ id: Type.String(), name: Type.String(), email: Type.String() });

export const signedInAnswer = {
  status: 200,
  description: 'Signed in, with a session in a cookie; or the password was right and a second factor is needed.',
  schema: Type.Object({
    object: Type.Literal('sign_in'),
    two_factor_required: Type.Boolean(),
    user: Type.Optional(personSchema),
  }) as TSchema,
} as const;

interface Answered {
  readonly headers: Headers;
  readonly response: unknown;
}

type AnyCall = Pick<Call, 'services' | 'headers' | 'address'>;

/** The request headers that better-auth receives. */
export function authHeaders(call: AnyCall): Headers {
  const headers = new Headers({ [addressHeaderName]: call.address });
  for (const name of ['cookie', 'user-agent']) {
    const value = call.headers[name];
    if (typeof value === 'string') headers.set(name, value.slice(0, 4096));
  }
  return headers;
}

/** Calls better-auth, and replaces its refusals with our own. Returns the cookies that it sets. */
export async function askAuth(
  call: AnyCall,
  ask: (auth: Auth, headers: Headers) => Promise<unknown>,
  provider?: string,
): Promise<{ readonly response: unknown; readonly cookies: readonly string[] }> {
  const headers = authHeaders(call);
  try {
    const { users } = call.services;
    const auth = await (provider === undefined ? users.auth() : users.authFor(provider));
    const { headers: set, response } = (await ask(auth, headers)) as Answered;
    return { response, cookies: set.getSetCookie() };
  } catch (error) {
    throw refusalOf(error);
  }
}

/** The errors of better-auth: its own class, with a status and usually a code. */
export interface AuthRefusal extends Error {
  readonly statusCode: number;
  readonly body?: { readonly code?: string };
  readonly headers?: Headers | Readonly<Record<string, string>>;
}

export const isAuthRefusal = (error: unknown): error is AuthRefusal =>
  error instanceof Error && error.name === 'APIError' && typeof (error as AuthRefusal).statusCode === 'number';

function refusalOf(error: unknown): unknown {
  if (!isAuthRefusal(error)) return error;
  const code = error.body?.code ?? '';
  const details = { cause: error };
  switch (code) {
    case 'INVALID_EMAIL_OR_PASSWORD':
      return new ApiError('invalid_api_key', 'The e-mail address or the password is wrong.', details);
    case 'EMAIL_NOT_VERIFIED':
      return new ApiError('http_403', 'Confirm your e-mail address first: a mail with a link is on its way.', details);
    case 'INVALID_TOKEN':
    case 'TOKEN_EXPIRED':
    case 'USER_NOT_FOUND':
      return deadLink();
    case 'PASSWORD_TOO_SHORT':
    case 'PASSWORD_TOO_LONG':
      return new ApiError('unsupported_value', 'A password must have 10 to 200 characters.', {
        ...details,
        param: 'password',
      });
    case 'INVALID_EMAIL':
      return new ApiError('unsupported_value', 'This is not an e-mail address.', { ...details, param: 'email' });
    case 'INVALID_PASSWORD':
      return new ApiError('invalid_api_key', 'The password is wrong.', details);
    case 'CREDENTIAL_ACCOUNT_NOT_FOUND':
      return new ApiError('http_409', 'You have no password yet. Ask for a new one by mail.', details);
    case 'PROVIDER_NOT_FOUND':
      return new ApiError('http_409', 'The provider cannot be reached now. Try again in some seconds.', details);
    case 'NOT_ALLOWED':
    case 'NOT_INVITED':
      return new ApiError('http_403', 'With this address nobody can sign in here. Ask for an invitation.', details);
  }
  if (error.statusCode === 429)
    return new ApiError('rate_limit_exceeded', 'Too many wrong codes. Try again in 15 minutes.', {
      ...details,
      retryAfterSeconds: 900,
    });
  if (error.statusCode === 401)
    return new ApiError('invalid_api_key', 'The code or passkey was wrong, or it came too late.', details);
  if (error.statusCode >= 500) return error;
  return new ApiError(
    'unsupported_value',
    `The sign-in service refused this (${/^[A-Z_]{1,60}$/.exec(code)?.[0] ?? 'refused'}).`,
    details,
  );
}

/** Counts an attempt to prove an identity. Rejects with 429; call the resolved function if the attempt succeeds. */
export const beginAttempt = ({ services, address }: AnyCall, person: string): Promise<() => Promise<void>> =>
  services.users.attempts.begin(person.toLowerCase(), address);

/** An answer that sets cookies. */
export const withCookies = (status: number, value: unknown, cookies: readonly string[]): Reply =>
  new Reply(status, { 'content-type': 'application/json', 'set-cookie': cookies }, JSON.stringify(value));

/** The browser's current user, on a route that anyone may use. */
export async function signedInBefore({ services, headers }: AnyCall): Promise<SignedInPerson | undefined> {
  return typeof headers.cookie === 'string' ? await services.users.signedIn(headers.cookie) : undefined;
}

export const emptyCookie = (accountUrl: string): string =>
  `${sessionCookie(accountUrl)}=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax${accountUrl.startsWith('https://') ? '; Secure' : ''}`;

/** Ends the browser's previous session, when another begins in it. */
export async function endEarlier(
  call: Pick<Call, 'principal' | 'services' | 'address' | 'requestId'>,
  { userId, sessionId }: SignedInPerson,
): Promise<void> {
  await call.services.operations.repositories.endSessions({ userId, only: sessionId });
  await endViews(operationsOf(call), { userId });
}

/** The answer to a sign-in; ends the browser's previous session (session fixation). */
export async function signedIn(
  call: AnyCall & Pick<Call, 'audit' | 'principal' | 'requestId'>,
  { response, cookies }: Awaited<ReturnType<typeof askAuth>>,
): Promise<Reply> {
  const { users } = call.services;
  const before = await signedInBefore(call);
  const { user, twoFactorRedirect } = response as {
    readonly user?: { readonly id: string; readonly name: string; readonly email: string };
    readonly twoFactorRedirect?: boolean;
  };
  if (twoFactorRedirect === true || user === undefined)
    return withCookies(200, { object: 'sign_in', two_factor_required: true }, cookies);
  if (before !== undefined) await endEarlier(call, before);
  await users.welcome(user.id, user.name);
  const { id, name, email } = user;
  await call.audit({ action: 'session.create', target: id, by: { userId: id, email } });
  return withCookies(200, { object: 'sign_in', two_factor_required: false, user: { id, name, email } }, cookies);
}
