import Type from 'typebox';

import { operate } from '../../accounts/operations.ts';
import { ApiError } from '../../errors.ts';
import { sessionCookie } from '../../people/cookies.ts';
import { resetPassword } from '../../people/password-reset.ts';
import type { PersonStays } from '../../store/erase-person.ts';
import { notThere } from '../input.ts';
import { operationsOf } from '../operations-of.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { secondsOf } from '../wire.ts';
import {
  askAuth,
  beginAttempt,
  done,
  email,
  linkToken,
  password,
  personName,
  personSchema,
  signedIn,
  signedInAnswer,
  withCookies,
} from './sign-in.ts';

const tag = 'Sign-in';
type Person = Extract<Call['principal'], { readonly kind: 'user' }>;
/** Of a route with the access `user`. */
export const personOf = (call: Pick<Call, 'principal'>): Person => call.principal as Person;

/** Passwords, sessions and who somebody is. */
export const peopleRoutes: readonly AccountRoute[] = [
  route({
    method: 'post',
    path: '/v1/auth/sign-up',
    operationId: 'signUp',
    tag,
    summary: 'Sign up',
    description:
      'Makes a person, who gets a mail with a link to confirm the address. The answer is the same for an address that is known, and where only invited people may sign up.',
    access: 'anyone',
    body: Type.Object({ email, password, name: personName }, { additionalProperties: false }),
    answers: [done],
    errors: ['unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      // Each sign-up is a hash and a mail: one network makes few.
      await beginAttempt(call, 'sign-up');
      await askAuth(call, (auth, headers) => auth.api.signUpEmail({ body: call.body, headers, returnHeaders: true }));
      return { done: true };
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/sign-in',
    operationId: 'signIn',
    tag,
    summary: 'Sign in with a password',
    description:
      'Begins a session, in a cookie. Failed attempts are answered slower and slower, by person and by network. The session that the cookie had before ends.',
    access: 'anyone',
    body: Type.Object({ email, password }, { additionalProperties: false }),
    answers: [signedInAnswer],
    errors: ['invalid_api_key', 'http_403', 'rate_limit_exceeded'],
    handle: async (call) => {
      const right = await beginAttempt(call, call.body.email);
      const answered = await askAuth(call, (auth, headers) =>
        auth.api.signInEmail({ body: call.body, headers, returnHeaders: true }),
      );
      await right();
      return await signedIn(call, answered);
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/sign-out',
    operationId: 'signOut',
    tag,
    summary: 'Sign out',
    description: 'Ends this session.',
    access: 'user',
    answers: [done],
    handle: async (call) => {
      const { userId, sessionId } = personOf(call);
      await call.services.operations.desk.endSessions({ userId, only: sessionId });
      await call.audit({ action: 'session.delete', target: sessionId });
      return withCookies(200, { done: true }, [emptyCookie(call.services.accountUrl())]);
    },
  }),
  route({
    method: 'get',
    path: '/v1/auth/sessions',
    operationId: 'listSessions',
    tag,
    summary: 'List sessions',
    description: 'Where you are signed in, newest first.',
    access: 'user',
    answers: [
      {
        status: 200,
        description: 'Your sessions.',
        schema: Type.Object({
          object: Type.Literal('list'),
          data: Type.Array(
            Type.Object({
              id: Type.String(),
              created_at: Type.Integer(),
              expires_at: Type.Integer(),
              address: Type.Union([Type.String(), Type.Null()]),
              user_agent: Type.Union([Type.String(), Type.Null()]),
              is_current: Type.Boolean(),
            }),
          ),
          has_more: Type.Literal(false),
        }),
      },
    ],
    handle: async (call) => {
      const { userId, sessionId } = personOf(call);
      const { desk, now } = call.services.operations;
      const sessions = await desk.listSessions({ userId, at: now() });
      return {
        object: 'list',
        data: sessions.map(({ id, createdAt, expiresAt, ipAddress, userAgent }) => ({
          id,
          created_at: secondsOf(createdAt),
          expires_at: secondsOf(expiresAt),
          address: ipAddress === '' ? null : ipAddress,
          user_agent: userAgent === '' ? null : userAgent,
          is_current: id === sessionId,
        })),
        has_more: false,
      };
    },
  }),
  route({
    method: 'delete',
    path: '/v1/auth/sessions',
    operationId: 'endOtherSessions',
    tag,
    summary: 'End all other sessions',
    description: 'You stay signed in here alone.',
    access: 'user',
    answers: [done],
    handle: async (call) => {
      const { userId, sessionId } = personOf(call);
      await call.services.operations.desk.endSessions({ userId, except: sessionId });
      await call.audit({ action: 'session.delete_others', target: userId });
      return { done: true };
    },
  }),
  route({
    method: 'delete',
    path: '/v1/auth/sessions/{id}',
    operationId: 'endSession',
    tag,
    summary: 'End a session',
    description: 'At once, wherever it is.',
    access: 'user',
    params: Type.Object({ id: Type.String({ pattern: '^[A-Za-z0-9]{16,64}$' }) }),
    answers: [done],
    errors: ['http_404'],
    handle: async (call) => {
      const { userId } = personOf(call);
      const ended = await call.services.operations.desk.endSessions({ userId, only: call.params.id });
      if (ended === 0) throw notThere();
      await call.audit({ action: 'session.delete', target: call.params.id });
      return { done: true };
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/password',
    operationId: 'changePassword',
    tag,
    summary: 'Change your password',
    description: 'Ends all of your sessions; this browser gets a new one.',
    access: 'user',
    body: Type.Object({ current_password: password, new_password: password }, { additionalProperties: false }),
    answers: [done],
    errors: ['invalid_api_key', 'unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      const { email: person, userId } = personOf(call);
      const right = await beginAttempt(call, person);
      const { current_password: currentPassword, new_password: newPassword } = call.body;
      const { cookies } = await askAuth(call, (auth, headers) =>
        auth.api.changePassword({
          body: { currentPassword, newPassword, revokeOtherSessions: true },
          headers,
          returnHeaders: true,
        }),
      );
      await right();
      await call.audit({ action: 'password.change', target: userId });
      return withCookies(200, { done: true }, cookies);
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/password/forgot',
    operationId: 'forgotPassword',
    tag,
    summary: 'Ask for a new password',
    description:
      'Sends a link that can be used once within an hour. The answer is the same for an address that nobody has.',
    access: 'anyone',
    body: Type.Object({ email }, { additionalProperties: false }),
    answers: [done],
    errors: ['rate_limit_exceeded'],
    handle: async (call) => {
      await beginAttempt(call, 'forgot');
      await askAuth(call, (auth, headers) =>
        auth.api.requestPasswordReset({ body: { email: call.body.email.toLowerCase() }, headers, returnHeaders: true }),
      );
      return { done: true };
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/password/reset',
    operationId: 'resetPassword',
    tag,
    summary: 'Choose a new password',
    description: 'With the token of the link. Ends all sessions.',
    access: 'anyone',
    body: Type.Object({ token: linkToken, password }, { additionalProperties: false }),
    answers: [done],
    errors: ['http_404', 'unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      const right = await beginAttempt(call, 'reset');
      const { token, password: chosen } = call.body;
      const { response } = await askAuth(call, (auth, headers) => resetPassword(auth, token, chosen, headers));
      await right();
      const by = response as { readonly userId: string; readonly email: string };
      await call.audit({ action: 'password.reset', target: by.userId, by });
      return { done: true };
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/verify-email',
    operationId: 'verifyEmail',
    tag,
    summary: 'Confirm an e-mail address',
    description: 'With the token of the link. Nobody is signed in by it.',
    access: 'anyone',
    body: Type.Object({ token: linkToken }, { additionalProperties: false }),
    answers: [done],
    errors: ['http_404', 'rate_limit_exceeded'],
    handle: async (call) => {
      const right = await beginAttempt(call, 'verify');
      await askAuth(call, (auth, headers) =>
        auth.api.verifyEmail({ query: { token: call.body.token }, headers, returnHeaders: true }),
      );
      await right();
      return { done: true };
    },
  }),
  route({
    method: 'get',
    path: '/v1/me',
    operationId: 'getMe',
    tag,
    summary: 'Who you are',
    description: 'The person who is signed in, and their accounts.',
    access: 'user',
    answers: [
      {
        status: 200,
        description: 'You.',
        schema: Type.Object({
          object: Type.Literal('user'),
          ...personSchema.properties,
          is_operator: Type.Boolean(),
          two_factor_enabled: Type.Boolean({ description: 'A code of an authenticator ends your sign-in.' }),
          proved_at: Type.Integer({ description: 'When you last signed in: unix seconds.' }),
          accounts: Type.Array(
            Type.Object({ id: Type.String(), name: Type.String(), role: Type.String(), status: Type.String() }),
          ),
        }),
      },
    ],
    handle: async (call) => {
      const { userId, name, email: address, isOperator, hasTwoFactor, provedAt } = personOf(call);
      const accounts = await call.services.operations.desk.listMemberships({ userId });
      return {
        object: 'user',
        id: userId,
        name,
        email: address,
        is_operator: isOperator,
        two_factor_enabled: hasTwoFactor,
        proved_at: secondsOf(provedAt),
        accounts: accounts.map(({ accountId, ...account }) => ({ id: accountId, ...account })),
      };
    },
  }),
  route({
    method: 'delete',
    path: '/v1/me',
    operationId: 'deleteMe',
    tag: 'Sign-in',
    summary: 'Delete yourself',
    description:
      'For good: how you sign in, what you belong to, your mail and your name everywhere; keys that were made in your name are revoked. The log of changes keeps ids alone. An account keeps one owner, and the server one operator: where you are the last, the answer is 409.',
    access: 'user',
    stepUp: true,
    answers: [
      {
        status: 200,
        description: 'You are gone, and signed out everywhere.',
        schema: Type.Object({ id: Type.String(), object: Type.Literal('user.deleted'), deleted: Type.Literal(true) }),
      },
    ],
    errors: ['http_409'],
    handle: async (call) => {
      const { userId } = personOf(call);
      await erase(call, userId);
      return withCookies(200, { id: userId, object: 'user.deleted', deleted: true }, [
        emptyCookie(call.services.accountUrl()),
      ]);
    },
  }),
];

const erasuresMax = 100;
/** Entries of the log: of so many accounts that are left. */
const accountsMax = 100;

/** Each round revokes the keys that there are; whoever makes more meanwhile is not followed for ever. */
async function erase(call: Call, userId: string): Promise<void> {
  const { desk, newId, now } = call.services.operations;
  let stays = await desk.whyPersonStays({ userId });
  for (let rounds = 0; rounds < erasuresMax; rounds++) {
    if (stays?.kind === 'keys')
      for (const keyId of stays.ids) await operate({ kind: 'revoke_key', keyId }, operationsOf(call));
    else if (stays !== undefined) throw new ApiError('http_409', whyOf(stays));
    stays = await desk.erasePerson({
      userId,
      at: now(),
      requestId: call.requestId,
      entryIds: Array.from({ length: accountsMax + 1 }, newId),
    });
    if (stays === undefined) return;
  }
  throw new ApiError('http_409', 'Keys are being made in your name. Try again.');
}

const whyOf = (stays: Exclude<PersonStays, { readonly kind: 'keys' }>): string =>
  stays.kind === 'last_owner'
    ? `You are the last owner of ${stays.accountId}. Make somebody else its owner, or delete the account, first.`
    : 'You are the last who runs this server. Make somebody else its operator first: tokenhouse owner create.';

const emptyCookie = (accountUrl: string): string =>
  `${sessionCookie(accountUrl)}=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax${accountUrl.startsWith('https://') ? '; Secure' : ''}`;
