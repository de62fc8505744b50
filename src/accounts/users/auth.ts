import { passkey } from '@better-auth/passkey';
import { APIError } from 'better-auth/api';
import { betterAuth } from 'better-auth/minimal';
import type { BetterAuthOptions } from 'better-auth';
import { genericOAuth } from 'better-auth/plugins/generic-oauth';
import { twoFactor } from 'better-auth/plugins/two-factor';

import { isMailAddress } from '../mail-address.ts';
import { newPersonId } from '../owner.ts';
import type { OidcConfig, SignInConfig } from '../../config/config.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { addressHeaderName, cookiePrefix, sessionCookie } from './cookies.ts';
import { passwordLength } from './password.ts';
import type { Passwords } from './password.ts';
import { passwordWasSet } from './password-owner.ts';
import { authStorage } from './storage.ts';

/** Sessions end after this long, regardless of activity. */
export const sessionDays = 7;
export const resetMinutes = 60;
export const verificationHours = 24;

export interface AuthOptions {
  readonly repositories: Repositories;
  /** Key for cookies, links and second factors. */
  readonly secret: string;
  readonly signIn: SignInConfig;
  readonly accountUrl: string;
  readonly passwords: Passwords;
  readonly now: () => number;
  readonly sendVerification: (person: { readonly id: string; readonly email: string }, token: string) => Promise<void>;
  readonly sendReset: (person: { readonly email: string; readonly name: string }, token: string) => Promise<void>;
  readonly sendKnown: (person: { readonly email: string; readonly name: string }) => Promise<void>;
}

export type Auth = ReturnType<typeof createAuth>;

/**
 * better-auth, limited to the features used here: no plugin that creates keys, sends sign-in links, or knows organizations (decision 014).
 * None of its endpoints is reachable directly: this service's routes call them individually.
 */
export function createAuth(options: AuthOptions) {
  const { repositories, signIn, accountUrl } = options;
  const prefix = cookiePrefix(accountUrl);
  const isSecure = accountUrl.startsWith('https://');
  const { hostname, origin } = new URL(accountUrl);
  return betterAuth({
    appName: 'Tokenhouse',
    baseURL: accountUrl,
    basePath: '/v1/auth',
    secret: options.secret,
    database: authStorage(repositories),
    telemetry: { enabled: false },
    logger: { disabled: true },
    // The rate limits are in `attempts.ts` and the account host.
    rateLimit: { enabled: false },
    trustedOrigins: [origin],
    user: { modelName: 'auth_user', changeEmail: { enabled: true } },
    session: {
      modelName: 'auth_session',
      expiresIn: sessionDays * 86_400,
      disableSessionRefresh: true,
      cookieCache: { enabled: false },
    },
    account: {
      modelName: 'auth_account',
      encryptOAuthTokens: true,
      accountLinking: { enabled: true, trustedProviders: [], allowDifferentEmails: false },
    },
    verification: { modelName: 'auth_verification', storeIdentifier: 'hashed' },
    emailAndPassword: passwordRules(options),
    emailVerification: {
      sendOnSignUp: true,
      sendOnSignIn: true,
      autoSignInAfterVerification: false,
      expiresIn: verificationHours * 3600,
      sendVerificationEmail: ({ user, token }) => options.sendVerification(user, token),
    },
    databaseHooks: hooksOf(options),
    advanced: {
      // Names and attributes are set here, because better-auth's switch does not produce `__Host-`.
      useSecureCookies: false,
      cookiePrefix: prefix,
      cookies: { session_token: { name: sessionCookie(accountUrl) } },
      defaultCookieAttributes: { httpOnly: true, sameSite: 'lax', path: '/', secure: isSecure },
      ipAddress: { ipAddressHeaders: [addressHeaderName] },
      database: { generateId: newPersonId },
    },
    plugins: [
      twoFactor({ issuer: 'Tokenhouse', twoFactorTable: 'auth_two_factor' }),
      passkey({
        rpID: hostname,
        rpName: 'Tokenhouse',
        origin,
        authenticatorSelection: { residentKey: 'preferred', userVerification: 'required' },
        schema: { passkey: { modelName: 'auth_passkey' } },
      }),
      genericOAuth({ config: signIn.oidc.map(providerOf) }),
    ],
  });
}

function passwordRules({ repositories, passwords, now, sendReset, sendKnown }: AuthOptions) {
  return {
    enabled: true,
    requireEmailVerification: true,
    autoSignIn: false,
    minPasswordLength: passwordLength.min,
    maxPasswordLength: passwordLength.max,
    revokeSessionsOnPasswordReset: true,
    resetPasswordTokenExpiresIn: resetMinutes * 60,
    password: {
      hash: (password) => passwords.hash(password),
      verify: ({ hash, password }) => passwords.verify(hash, password),
    },
    sendResetPassword: ({ user, token }) => sendReset(user, token),
    // The link came by mail, so the address belongs to the user.
    onPasswordReset: async ({ user }) => {
      passwordWasSet(user);
      await repositories.authStore({
        act: 'update',
        table: 'auth_user',
        where: [{ column: 'id', operator: 'eq', value: user.id, connector: 'AND' }],
        set: { emailVerified: 1, updatedAt: now() },
        many: false,
      });
    },
    onExistingUserSignUp: ({ user }) => sendKnown(user),
  } satisfies BetterAuthOptions['emailAndPassword'];
}

function hooksOf({ repositories, signIn, now }: AuthOptions) {
  return {
    session: {
      create: {
        // Uses the clock shared by all processes on the database, which step-up and session expiry are measured by.
        before: (session) => {
          const at = now();
          const times = {
            createdAt: new Date(at),
            updatedAt: new Date(at),
            expiresAt: new Date(at + sessionDays * 86_400_000),
          };
          return Promise.resolve({ data: { ...session, ...times } });
        },
      },
    },
    user: {
      create: {
        before: async (user) => {
          if (signIn.signUp === 'open') return;
          if (!(await repositories.isInvited({ email: user.email, at: now() })))
            throw new APIError('FORBIDDEN', {
              message: 'Only invited people can sign up here.',
              code: 'NOT_INVITED',
            });
        },
      },
    },
  } satisfies BetterAuthOptions['databaseHooks'];
}

function providerOf({ id, name, issuer, clientId, clientSecret, domains }: OidcConfig) {
  return {
    providerId: id,
    name,
    clientId,
    ...(clientSecret === undefined
      ? { tokenEndpointAuth: { method: 'none' as const } }
      : { clientSecret: clientSecret.reveal() }),
    discoveryUrl: `${issuer}/.well-known/openid-configuration`,
    requireIdTokenVerification: true,
    pkce: true,
    scopes: ['openid', 'email', 'profile'],
    // Checks who may sign in through the provider; an address that it does not vouch for belongs to no user.
    mapProfileToUser: (profile: Record<string, unknown>) => {
      const { email, email_verified: isVerified } = profile;
      const domain = typeof email === 'string' ? email.slice(email.lastIndexOf('@') + 1).toLowerCase() : '';
      if (isVerified !== true || !domains.includes(domain) || !isMailAddress(String(email)))
        throw new APIError('FORBIDDEN', {
          message: 'This address may not sign in through this provider.',
          code: 'NOT_ALLOWED',
        });
      return { emailVerified: true };
    },
  };
}
