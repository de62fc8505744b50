import Type from 'typebox';

import { operate } from '../../accounts/operations.ts';
import { ApiError } from '../../platform/errors.ts';
import { isChangeLinkOpen } from '../../accounts/users/email-change.ts';
import type { EmailChange } from '../../accounts/users/email-change.ts';
import { inSession } from '../../accounts/users/in-session.ts';
import { deadLink } from '../../accounts/users/users.ts';
import type { PersonStays } from '../../store/erasure/erase-person.ts';
import { StoreError } from '../../store/store-error.ts';
import type { Viewing } from '../../store/repositories/users.ts';
import type { WayIn } from '../../store/repositories/ways-in.ts';
import { passwordProvider } from '../../store/row-facts.ts';
import { notThere } from '../input.ts';
import { operationsOf } from '../operations-of.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { viewingRefusal } from '../viewing.ts';
import { nullable, secondsOf } from '../wire.ts';
import {
  askAuth,
  beginAttempt,
  done,
  email,
  emptyCookie,
  personName,
  personSchema,
  signedInBefore,
  withCookies,
} from './sign-in.ts';

const tag = 'Sign-in';

type Person = Extract<Call['principal'], { readonly kind: 'user' }>;

/** The user on a route with the access `user`. */
export const personOf = (call: Pick<Call, 'principal'>): Person => call.principal as Person;

const you = {
  status: 200,
  description: 'You.',
  schema: Type.Object({
    object: Type.Literal('user'),
    ...personSchema.properties,
    is_operator: Type.Boolean(),
    two_factor_enabled: Type.Boolean({ description: 'A code of an authenticator ends your sign-in.' }),
    has_password: Type.Boolean({ description: 'false: you sign in at a provider or with a passkey alone.' }),
    providers: Type.Array(Type.String(), { description: 'Ids of the providers where you have signed in.' }),
    proved_at: Type.Integer({ description: 'When you last signed in: unix seconds.' }),
    accounts: Type.Array(
      Type.Object({ id: Type.String(), name: Type.String(), role: Type.String(), status: Type.String() }),
      { description: 'While you view an account: this one, with the role of a viewer.' },
    ),
    viewing: nullable(
      Type.Object(
        { account_id: Type.String(), name: Type.String(), until: Type.Integer({ description: 'Unix seconds.' }) },
        { description: 'The account that you view as an operator, read-only.' },
      ),
    ),
  }),
} as const;

/** The signed-in user. */
export const meRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/me',
    operationId: 'getMe',
    tag,
    summary: 'Get the signed-in person',
    description: 'The person who is signed in, and their accounts.',
    access: 'user',
    answers: [you],
    handle: (call) => meOf(call, personOf(call)),
  }),
  route({
    method: 'patch',
    path: '/v1/me',
    operationId: 'editMe',
    tag,
    summary: 'Change your name',
    description: 'The name that others in your accounts see.',
    access: 'user',
    body: Type.Object({ name: personName }, { additionalProperties: false }),
    answers: [you],
    errors: ['rate_limit_exceeded'],
    handle: async (call) => {
      const person = personOf(call);
      const { name } = call.body;
      await askAuth(call, (auth, headers) => auth.api.updateUser({ body: { name }, headers, returnHeaders: true }));
      await call.audit({
        action: 'person.edit',
        target: person.userId,
        before: { name: person.name },
        after: { name },
      });
      return await meOf(call, { ...person, name });
    },
  }),
  route({
    method: 'delete',
    path: '/v1/me',
    operationId: 'deleteMe',
    tag,
    summary: 'Delete yourself',
    description:
      'Permanent: deletes how you sign in, your memberships, your mail and your name everywhere; keys in your name are revoked. The audit log keeps ids only. An account needs an owner, and the server an operator: if you are the last one, the answer is 409.',
    access: 'user',
    stepUp: true,
    answers: [
      {
        status: 200,
        description: 'You are deleted, and signed out everywhere.',
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
  route({
    method: 'post',
    path: '/v1/auth/email',
    operationId: 'changeEmail',
    tag,
    summary: 'Change your e-mail address',
    description:
      'Sends a link to the new address; nothing changes until it is opened where you are signed in (`verifyEmail`). The old address is notified then. The answer is the same for an address that somebody else has.',
    access: 'user',
    stepUp: true,
    body: Type.Object({ email }, { additionalProperties: false }),
    answers: [done],
    errors: ['unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      const person = personOf(call);
      const newEmail = call.body.email.toLowerCase();
      if (newEmail === person.email)
        throw new ApiError('unsupported_value', 'This is your address already.', { param: 'email' });
      // Each attempt counts as failed: otherwise mails to strangers would be free.
      await beginAttempt(call, `new address of ${person.userId}`);
      await askAuth(call, (auth, headers) =>
        auth.api.changeEmail({ body: { newEmail }, headers, returnHeaders: true }),
      );
      return { done: true };
    },
  }),
];

type EmailCall = Pick<Call, 'services' | 'headers' | 'address' | 'audit'>;

/** Confirms the address that a user signed up with. */
export async function confirmEmail(call: EmailCall, token: string): Promise<void> {
  await askAuth(call, (auth, headers) => auth.api.verifyEmail({ query: { token }, headers, returnHeaders: true }));
}

/** Gives a user their new address. Rejects with 403 if they are not signed in, and 409 if the address is taken. */
export async function confirmChange(call: EmailCall, token: string, change: EmailChange): Promise<void> {
  const { users, operations } = call.services;
  const person = await signedInBefore(call);
  // The link was opened twice.
  if (person?.email === change.to) return;
  if (person?.email !== change.from)
    throw new ApiError('http_403', 'First sign in with your old address in this browser; then open the link again.');
  if (person.viewing !== undefined) throw viewingRefusal(person.viewing);
  const { userId, sessionId } = person;
  const { repositories, now } = operations;
  if (!(await isChangeLinkOpen(repositories, { userId, token, at: now() }))) throw deadLink();
  try {
    await inSession(sessionId, () => confirmEmail(call, token));
  } catch (error) {
    if (error instanceof StoreError && error.code === 'conflict')
      throw new ApiError('http_409', 'Somebody else has started to use this address meanwhile.', { cause: error });
    throw error;
  }
  const [before, after] = [{ email: change.from }, { email: change.to }];
  await call.audit({ action: 'email.change', target: userId, by: person, before, after });
  await users.notifyChange(change);
}

async function meOf(
  { services }: Pick<Call, 'services'>,
  { userId, name, email: address, isOperator, hasTwoFactor, provedAt, viewing }: Person,
) {
  const { repositories } = services.operations;
  const accounts = viewing === undefined ? await repositories.listMemberships({ userId }) : [viewed(viewing)];
  const ways = await repositories.authStore({
    act: 'find',
    table: 'auth_account',
    where: [{ column: 'userId', operator: 'eq', value: userId, connector: 'AND' }],
    limit: 100,
  });
  const providers = ways.rows.map((row) => String(row['providerId']));
  return {
    object: 'user',
    id: userId,
    name,
    email: address,
    is_operator: isOperator,
    two_factor_enabled: hasTwoFactor,
    has_password: providers.includes(passwordProvider),
    providers: providers.filter((id) => id !== passwordProvider),
    proved_at: secondsOf(provedAt),
    accounts: accounts.map(({ accountId, ...account }) => ({ id: accountId, ...account })),
    viewing:
      viewing === undefined
        ? null
        : { account_id: viewing.accountId, name: viewing.name, until: secondsOf(viewing.expiresAt) },
  };
}

const viewed = ({ accountId, name, isSuspended }: Viewing) => ({
  accountId,
  name,
  role: 'viewer',
  status: isSuspended ? 'suspended' : 'active',
});

const erasuresMax = 100;
/** Entries of the log: the maximum number of accounts that a user leaves. */
const accountsMax = 100;

/** Each round revokes the existing keys; a user who keeps creating more is not followed forever. */
async function erase(call: Call, userId: string): Promise<void> {
  const { repositories, newId, now } = call.services.operations;
  let stays = await repositories.whyPersonStays({ userId });
  for (let rounds = 0; rounds < erasuresMax; rounds++) {
    if (stays?.kind === 'keys')
      for (const keyId of stays.ids) await operate({ kind: 'revoke_key', keyId }, operationsOf(call));
    else if (stays !== undefined) throw new ApiError('http_409', whyOf(stays));
    stays = await repositories.erasePerson({
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
    : 'You are the last operator of this server. Make somebody else its operator first: tokenhouse owner create.';

/** Removes a way to sign in from the signed-in person. Throws `http_404` if it is not theirs, and `http_409` if it is their last. */
export async function loseWayIn(call: Call, way: WayIn): Promise<void> {
  const { services } = call;
  const providers = services.config().signIn.oidc.map(({ id }) => id);
  const { userId, sessionId } = personOf(call);
  const outcome = await services.operations.repositories.removeWayIn({ userId, sessionId, way, providers });
  if (outcome === 'absent') throw notThere();
  if (outcome === 'last')
    throw new ApiError('http_409', 'You could not sign in without it. First set a password, or add a passkey.');
}
