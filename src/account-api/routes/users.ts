import Type from 'typebox';

import { emailChangeOf } from '../../accounts/users/email-change.ts';
import { resetPassword } from '../../accounts/users/password-reset.ts';
import { endViews } from '../../accounts/account-views.ts';
import { endSessionKeys } from '../../accounts/session-keys.ts';
import { notThere } from '../input.ts';
import { operationsOf } from '../operations-of.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { page, secondsOf, wholeListSchema } from '../wire.ts';
import { confirmChange, confirmEmail, meRoutes, personOf } from './me.ts';
import {
  askAuth,
  beginAttempt,
  done,
  email,
  emptyCookie,
  linkToken,
  password,
  personName,
  signedIn,
  signedInAnswer,
  withCookies,
} from './sign-in.ts';

const tag = 'Sign-in';

/** Passwords, sessions and the user's identity. */
export const userRoutes: readonly AccountRoute[] = [
  route({
    method: 'post',
    path: '/v1/auth/sign-up',
    operationId: 'signUp',
    tag,
    summary: 'Sign up',
    description:
      'Registers a person, and mails a link to confirm the address. The answer is the same for a known address, and where only invited people may sign up.',
    access: 'anyone',
    body: Type.Object({ email, password, name: personName }, { additionalProperties: false }),
    answers: [done],
    errors: ['unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      // Each sign-up costs a hash and a mail: one network may make few.
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
      'Starts a session, in a cookie. Failed attempts are answered more and more slowly, per person and per network. An earlier session of the cookie ends.',
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
    evenViewing: true,
    answers: [done],
    handle: async (call) => {
      const { userId, sessionId } = personOf(call);
      await call.services.operations.repositories.endSessions({ userId, only: sessionId });
      await endOfSessions(call, userId);
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
    description: 'Your sessions, newest first.',
    access: 'user',
    answers: [
      {
        status: 200,
        description: 'Your sessions.',
        schema: wholeListSchema(
          Type.Object({
            id: Type.String(),
            created_at: Type.Integer(),
            expires_at: Type.Integer(),
            address: Type.Union([Type.String(), Type.Null()]),
            user_agent: Type.Union([Type.String(), Type.Null()]),
            is_current: Type.Boolean(),
          }),
        ),
      },
    ],
    handle: async (call) => {
      const { userId, sessionId } = personOf(call);
      const { repositories, now } = call.services.operations;
      const sessions = await repositories.listSessions({ userId, at: now() });
      return page(
        sessions.map(({ id, createdAt, expiresAt, ipAddress, userAgent }) => ({
          id,
          created_at: secondsOf(createdAt),
          expires_at: secondsOf(expiresAt),
          address: ipAddress === '' ? null : ipAddress,
          user_agent: userAgent === '' ? null : userAgent,
          is_current: id === sessionId,
        })),
      );
    },
  }),
  route({
    method: 'delete',
    path: '/v1/auth/sessions',
    operationId: 'endOtherSessions',
    tag,
    summary: 'End all other sessions',
    description: 'Only this session stays signed in.',
    access: 'user',
    answers: [done],
    handle: async (call) => {
      const { userId, sessionId } = personOf(call);
      await call.services.operations.repositories.endSessions({ userId, except: sessionId });
      await endOfSessions(call, userId);
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
    description: 'The session ends at once.',
    access: 'user',
    params: Type.Object({ id: Type.String({ pattern: '^[A-Za-z0-9]{16,64}$' }) }),
    answers: [done],
    errors: ['http_404'],
    handle: async (call) => {
      const { userId } = personOf(call);
      const ended = await call.services.operations.repositories.endSessions({ userId, only: call.params.id });
      await endOfSessions(call, userId);
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
      await endViews(operationsOf(call), { userId });
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
    description: 'Sends a link that can be used once within an hour. The answer is the same for an unknown address.',
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
    description:
      'With the token of the link. Nobody is signed in by it. That of a new address counts only where its person is signed in: a link that went to a mistyped address opens nothing to its reader.',
    access: 'anyone',
    body: Type.Object({ token: linkToken }, { additionalProperties: false }),
    answers: [done],
    errors: ['http_403', 'http_404', 'http_409', 'rate_limit_exceeded'],
    handle: async (call) => {
      const right = await beginAttempt(call, 'verify');
      const { token } = call.body;
      const change = emailChangeOf(token);
      if (change === undefined) await confirmEmail(call, token);
      else await confirmChange(call, token, change);
      await right();
      return { done: true };
    },
  }),
  ...meRoutes,
];

/** What ends together with sessions of a person. */
async function endOfSessions(call: Call, userId: string): Promise<void> {
  await endSessionKeys(operationsOf(call), userId);
  await endViews(operationsOf(call), { userId });
}
