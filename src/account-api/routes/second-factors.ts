import Type from 'typebox';

import { ApiError } from '../../platform/errors.ts';
import { route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { page, secondsOf, wholeListSchema } from '../wire.ts';
import { loseWayIn, personOf } from './me.ts';
import {
  askAuth,
  beginAttempt,
  done,
  password,
  signedIn,
  signedInAnswer,
  signedInBefore,
  withCookies,
} from './sign-in.ts';

const tag = 'Sign-in';
const codes = Type.Array(Type.String(), {
  description: 'Each works once instead of a code. Shown only now.',
});
const withPassword = Type.Object({ password }, { additionalProperties: false });

/** The result of a browser's WebAuthn, as JSON. */
const credential = Type.Object(
  {
    id: Type.String({ maxLength: 1400 }),
    rawId: Type.String({ maxLength: 1400 }),
    type: Type.Literal('public-key'),
    response: Type.Object({}, { additionalProperties: true }),
    clientExtensionResults: Type.Optional(Type.Object({}, { additionalProperties: true })),
    authenticatorAttachment: Type.Optional(Type.Union([Type.String({ maxLength: 40 }), Type.Null()])),
  },
  { additionalProperties: false },
);
const options = {
  status: 200,
  description: 'Options for WebAuthn, as JSON. The challenge is bound to this browser by a cookie, for five minutes.',
  schema: Type.Object({}, { additionalProperties: true }),
} as const;

/** Routes for authenticator codes and passkeys. */
export const secondFactorRoutes: readonly AccountRoute[] = [
  route({
    method: 'post',
    path: '/v1/auth/two-factor',
    operationId: 'beginTwoFactor',
    tag,
    summary: 'Set up an authenticator app',
    description: 'It takes effect with the first correct code (`verifyTwoFactor`).',
    access: 'user',
    stepUp: true,
    body: withPassword,
    answers: [
      {
        status: 200,
        description: 'The data for the authenticator app, and backup codes.',
        schema: Type.Object({ totp_uri: Type.String(), backup_codes: codes }),
      },
    ],
    errors: ['invalid_api_key', 'http_409', 'rate_limit_exceeded'],
    handle: async (call) => {
      const right = await beginAttempt(call, personOf(call).email);
      const { response } = await askAuth(call, (auth, headers) =>
        auth.api.enableTwoFactor({ body: { password: call.body.password }, headers, returnHeaders: true }),
      );
      await right();
      const { totpURI, backupCodes } = response as {
        readonly totpURI: string;
        readonly backupCodes: readonly string[];
      };
      await call.audit({ action: 'two_factor.begin', target: personOf(call).userId });
      return { totp_uri: totpURI, backup_codes: backupCodes };
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/two-factor/verify',
    operationId: 'verifyTwoFactor',
    tag,
    summary: 'Verify a code',
    description:
      'Completes a sign-in that needs a second factor, or a set-up. Five wrong codes end the sign-in; after ten in a row, codes are refused for 15 minutes.',
    access: 'anyone',
    body: Type.Object(
      {
        code: Type.Optional(Type.String({ pattern: '^[0-9]{6}$' })),
        backup_code: Type.Optional(Type.String({ pattern: '^[A-Za-z0-9-]{6,40}$' })),
      },
      { additionalProperties: false },
    ),
    answers: [signedInAnswer],
    errors: ['invalid_api_key', 'unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      const { code, backup_code: backupCode } = call.body;
      if ((code === undefined) === (backupCode === undefined))
        throw new ApiError('unsupported_value', 'Send either code or backup_code.', { param: 'code' });
      const right = await beginAttempt(call, 'code');
      const before = await signedInBefore(call);
      const answered = await askAuth(call, (auth, headers) =>
        code === undefined
          ? auth.api.verifyBackupCode({ body: { code: backupCode! }, headers, returnHeaders: true })
          : auth.api.verifyTOTP({ body: { code }, headers, returnHeaders: true }),
      );
      await right();
      // A signed-in user has completed the set-up.
      if (code !== undefined && before?.hasTwoFactor === false)
        await call.audit({ action: 'two_factor.enable', target: before.userId, by: before });
      return await signedIn(call, answered);
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/two-factor/disable',
    operationId: 'disableTwoFactor',
    tag,
    summary: 'Turn codes off',
    description: 'The authenticator and the backup codes no longer work.',
    access: 'user',
    stepUp: true,
    body: withPassword,
    answers: [done],
    errors: ['invalid_api_key', 'rate_limit_exceeded'],
    handle: async (call) => {
      const right = await beginAttempt(call, personOf(call).email);
      const { cookies } = await askAuth(call, (auth, headers) =>
        auth.api.disableTwoFactor({ body: { password: call.body.password }, headers, returnHeaders: true }),
      );
      await right();
      await call.audit({ action: 'two_factor.disable', target: personOf(call).userId });
      return withCookies(200, { done: true }, cookies);
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/two-factor/backup-codes',
    operationId: 'makeBackupCodes',
    tag,
    summary: 'Make new backup codes',
    description: 'Earlier backup codes no longer work.',
    access: 'user',
    stepUp: true,
    body: withPassword,
    answers: [{ status: 200, description: 'The codes.', schema: Type.Object({ backup_codes: codes }) }],
    errors: ['invalid_api_key', 'rate_limit_exceeded'],
    handle: async (call) => {
      const right = await beginAttempt(call, personOf(call).email);
      const { response } = await askAuth(call, (auth, headers) =>
        auth.api.generateBackupCodes({ body: { password: call.body.password }, headers, returnHeaders: true }),
      );
      await right();
      const { userId } = personOf(call);
      await call.services.operations.repositories.endSecrets({ event: 'backup_codes_made', userId });
      await call.audit({ action: 'two_factor.backup_codes', target: userId });
      return { backup_codes: (response as { readonly backupCodes: readonly string[] }).backupCodes };
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/passkeys/options',
    operationId: 'beginPasskey',
    tag,
    summary: 'Start to register a passkey',
    description: 'The options for the browser.',
    access: 'user',
    stepUp: true,
    answers: [options],
    handle: async (call) => {
      const { response, cookies } = await askAuth(call, (auth, headers) =>
        auth.api.generatePasskeyRegistrationOptions({ query: {}, headers, returnHeaders: true }),
      );
      return withCookies(200, response, cookies);
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/passkeys',
    operationId: 'createPasskey',
    tag,
    summary: 'Register a passkey',
    description: 'With what the browser answered.',
    access: 'user',
    stepUp: true,
    body: Type.Object(
      { credential, name: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })) },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'Registered.', schema: Type.Object({ id: Type.String() }) }],
    errors: ['invalid_api_key', 'unsupported_value'],
    handle: async (call) => {
      const { credential: sent, name } = call.body;
      const { response } = await askAuth(call, (auth, headers) =>
        auth.api.verifyPasskeyRegistration({
          body: { response: sent, ...(name === undefined ? {} : { name }) },
          headers,
          returnHeaders: true,
        }),
      );
      const { id } = response as { readonly id: string };
      await call.audit({ action: 'passkey.create', target: id });
      return { id };
    },
  }),
  route({
    method: 'get',
    path: '/v1/auth/passkeys',
    operationId: 'listPasskeys',
    tag,
    summary: 'List your passkeys',
    description: 'A hundred at most.',
    access: 'user',
    answers: [
      {
        status: 200,
        description: 'Your passkeys.',
        schema: wholeListSchema(
          Type.Object({
            id: Type.String(),
            name: Type.Union([Type.String(), Type.Null()]),
            created_at: Type.Integer(),
          }),
        ),
      },
    ],
    handle: async (call) => {
      const { rows } = await call.services.operations.repositories.authStore({
        act: 'find',
        table: 'auth_passkey',
        where: [{ column: 'userId', operator: 'eq', value: personOf(call).userId, connector: 'AND' }],
        limit: 100,
        sortBy: { column: 'createdAt', direction: 'desc' },
      });
      return page(
        rows.map((row) => ({
          id: String(row['id']),
          name: row['name'] ?? null,
          created_at: secondsOf(Number(row['createdAt'] ?? 0)),
        })),
      );
    },
  }),
  route({
    method: 'delete',
    path: '/v1/auth/passkeys/{id}',
    operationId: 'deletePasskey',
    tag,
    summary: 'Delete a passkey',
    description: 'It can no longer be used to sign in. 409: you could not sign in without it.',
    access: 'user',
    stepUp: true,
    params: Type.Object({ id: Type.String({ pattern: '^[0-9a-f]{32}$' }) }),
    answers: [done],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      await loseWayIn(call, { kind: 'passkey', id: call.params.id });
      await call.audit({ action: 'passkey.delete', target: call.params.id });
      return { done: true };
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/sign-in/passkey/options',
    operationId: 'beginPasskeySignIn',
    tag,
    summary: 'Start to sign in with a passkey',
    description: 'The options for the browser; the same for everybody.',
    access: 'anyone',
    answers: [options],
    handle: async (call) => {
      const { response, cookies } = await askAuth(call, (auth, headers) => {
        headers.delete('cookie');
        return auth.api.generatePasskeyAuthenticationOptions({ headers, returnHeaders: true });
      });
      return withCookies(200, response, cookies);
    },
  }),
  route({
    method: 'post',
    path: '/v1/auth/sign-in/passkey',
    operationId: 'signInWithPasskey',
    tag,
    summary: 'Sign in with a passkey',
    description: 'With what the browser answered. The authenticator has checked who holds it, so no code is wanted.',
    access: 'anyone',
    body: Type.Object({ credential }, { additionalProperties: false }),
    answers: [signedInAnswer],
    errors: ['invalid_api_key', 'unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      const right = await beginAttempt(call, 'passkey');
      refuseUnchecked(call.body.credential.response);
      const answered = await askAuth(call, (auth, headers) =>
        auth.api.verifyPasskeyAuthentication({
          body: { response: call.body.credential as never },
          headers,
          returnHeaders: true,
        }),
      );
      await right();
      return await signedIn(call, answered);
    },
  }),
];

/** WebAuthn 6.1: the bit of the signed authenticator data that says that the user was verified, by PIN or biometrics. */
const userVerified = 0x04;
const flagsAt = 32;

/** Refuses a key that any holder of the device can use: it is a single factor, and would bypass the codes. */
function refuseUnchecked({ authenticatorData }: { readonly authenticatorData?: unknown }): void {
  const flags =
    typeof authenticatorData === 'string' ? Buffer.from(authenticatorData, 'base64url')[flagsAt] : undefined;
  if (flags === undefined || (flags & userVerified) === 0)
    throw new ApiError('invalid_api_key', 'The authenticator did not verify you. Use its PIN, face or fingerprint.');
}
