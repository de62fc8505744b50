import Type from 'typebox';
import type { Static } from 'typebox';

import { hashLinkToken, newLinkToken } from '../../accounts/link-token.ts';
import { operate } from '../../accounts/operations.ts';
import { newPersonId } from '../../accounts/owner.ts';
import { ApiError } from '../../platform/errors.ts';
import { invitationMail } from '../../accounts/users/mails.ts';
import { deadLink } from '../../accounts/users/users.ts';
import { memberSubject, readMemberSubject } from '../../store/budget.ts';
import type { BudgetStatus } from '../../store/repositories/budgets.ts';
import type { InvitationRow } from '../../store/repositories/invitations.ts';
import type { MemberRow } from '../../store/repositories/members.ts';
import { StoreError } from '../../store/store-error.ts';
import { notThere } from '../input.ts';
import { budgetAskedFor, limitOf, limitSchema, limitSettings } from '../limit-object.ts';
import { operationsOf } from '../operations-of.ts';
import { everyRole, mayManage, roles, route } from '../route.ts';
import type { AccountRoute, Call, Role } from '../route.ts';
import type { AccountServices } from '../services.ts';
import { viewingRefusal } from '../viewing.ts';
import { listOf, listSchema, nullable, secondsOf } from '../wire.ts';
import { checkPassword } from './owner.ts';
import {
  askAuth,
  beginAttempt,
  done,
  email,
  linkToken,
  password,
  personName,
  signedIn,
  withCookies,
} from './sign-in.ts';

const tag = 'Members';
const role = Type.Union(roles.map((name) => Type.Literal(name)));
const memberId = Type.Object({ id: Type.String({ pattern: '^[0-9a-f]{32}$' }) });
export const membersQuery = Type.Object({
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
  after: Type.Optional(Type.String({ maxLength: 100 })),
});
export const memberSchema = Type.Object({
  id: Type.String({ description: 'Of the person.' }),
  object: Type.Literal('member'),
  name: Type.String(),
  email: Type.String(),
  role,
  joined_at: Type.Integer({ description: 'Unix seconds.' }),
  last_sign_in_at: nullable(
    Type.Integer({
      description:
        'Unix seconds; null: not since they joined. Owners and admins see everybody’s and their limits, others their own.',
    }),
  ),
  /** The limit of all the member's keys in the account. */
  ...limitSchema,
});
const invitation = Type.Object({
  id: Type.String({ description: '`inv_…`' }),
  object: Type.Literal('invite'),
  email: Type.String(),
  role,
  invited_by: Type.String({ description: 'Id of a person or a management key.' }),
  created_at: Type.Integer(),
  expires_at: Type.Integer(),
});

/** How long an invitation is valid, in days. */
export const invitedFor = 7;

/** Members of an account, and its invitations. */
export const memberRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/members',
    operationId: 'listMembers',
    tag,
    summary: 'List members',
    description: 'Newest first.',
    access: everyRole,
    query: membersQuery,
    answers: [{ status: 200, description: 'Members of the account.', schema: listSchema(memberSchema) }],
    errors: ['http_404'],
    handle: async (call) => await membersPage(call.services, call.account.id, call.query, maySeeMore(call)),
  }),
  route({
    method: 'get',
    path: '/v1/members/{id}',
    operationId: 'getMember',
    tag,
    summary: 'Read a member',
    description: 'By the id of the person.',
    access: everyRole,
    params: memberId,
    answers: [{ status: 200, description: 'The member.', schema: memberSchema }],
    errors: ['http_404'],
    handle: async (call) => {
      const row = await memberMeant(call);
      return memberOf(row, await moreOf(call.services, call.account.id, [row], maySeeMore(call)));
    },
  }),
  route({
    method: 'patch',
    path: '/v1/members/{id}',
    operationId: 'editMember',
    tag,
    summary: 'Change a role or a budget',
    description:
      'Fields that are left out stay. A role takes effect at once, in existing sessions too; only an owner can add, change or remove owners, and an account needs one. `limit_cents` is the most that all keys in their name may spend together; null removes it. It applies from the next request on, on every replica within a second.',
    access: mayManage,
    stepUp: true,
    params: memberId,
    body: Type.Object({ role: Type.Optional(role), ...limitSettings }, { additionalProperties: false }),
    answers: [{ status: 200, description: 'The member as they are now.', schema: memberSchema }],
    errors: ['http_403', 'http_404', 'http_409'],
    handle: async (call) => {
      const before = await memberMeant(call);
      const { account, body } = call;
      refuseBeyond(account.role, before.role);
      const { userId } = before;
      const { role = before.role } = body;
      refuseBeyond(account.role, role);
      const subject = memberSubject(account.id, userId);
      const budget = budgetAskedFor(body, await call.services.operations.repositories.getBudget({ subject }));
      if (body.role !== undefined) {
        await changeRole(call, before, role);
        await call.audit({ action: 'member.edit', target: userId, before: { role: before.role }, after: { role } });
      }
      if (budget !== undefined)
        await operate(
          { kind: 'budget_member', accountId: account.id, userId, budget: budget ?? undefined },
          operationsOf(call),
        );
      return memberOf({ ...before, role }, await moreOf(call.services, account.id, [before], maySeeMore(call)));
    },
  }),
  route({
    method: 'delete',
    path: '/v1/members/{id}',
    operationId: 'removeMember',
    tag,
    summary: 'Remove a member',
    description:
      'Takes effect at once, in existing sessions too. Their keys stay listed; keys in their name are revoked. Members may remove themselves; an account needs one owner.',
    access: everyRole,
    stepUp: true,
    params: memberId,
    answers: [
      {
        status: 200,
        description: 'Removed.',
        schema: Type.Object({
          id: Type.String(),
          object: Type.Literal('member'),
          deleted: Type.Literal(true),
          revoked_keys: Type.Array(Type.String()),
        }),
      },
    ],
    errors: ['http_403', 'http_404', 'http_409'],
    handle: async (call) => {
      const { account, principal, services } = call;
      const before = await memberMeant(call);
      const isSelf = principal.kind === 'user' && principal.userId === before.userId;
      if (!isSelf) {
        if (account.role !== 'owner' && account.role !== 'admin')
          throw new ApiError('http_403', 'Only an owner or an admin can remove others.');
        refuseBeyond(account.role, before.role);
      }
      await changeRole(call, before, null);
      const { repositories } = services.operations;
      const keys = await repositories.keysOfMember({ accountId: account.id, userId: before.userId });
      for (const keyId of keys) await operate({ kind: 'revoke_key', keyId }, operationsOf(call));
      await call.audit({
        action: 'member.remove',
        target: before.userId,
        before: { role: before.role, email: before.email },
        after: { revoked_keys: keys },
      });
      return { id: before.userId, object: 'member', deleted: true, revoked_keys: keys };
    },
  }),
  route({
    method: 'get',
    path: '/v1/invites',
    operationId: 'listInvites',
    tag,
    summary: 'List invitations',
    description: 'Invitations that can still be accepted, newest first.',
    access: mayManage,
    query: membersQuery,
    answers: [{ status: 200, description: 'Open invitations.', schema: listSchema(invitation) }],
    handle: async ({ account, query: { limit = 20, after }, services }) => {
      const { repositories, now } = services.operations;
      const found = await repositories.listInvitations({ accountId: account.id, at: now(), limit: limit + 1, after });
      return listOf(found, limit, invitationOf, ({ id }) => id);
    },
  }),
  route({
    method: 'post',
    path: '/v1/invites',
    operationId: 'createInvite',
    tag,
    summary: 'Invite somebody',
    description: `Sends a link by mail that works once, for ${invitedFor} days, for this address alone. An earlier one to the same address no longer works. You cannot give a higher role than your own, and only an owner can invite owners.`,
    access: mayManage,
    stepUp: true,
    body: Type.Object({ email, role }, { additionalProperties: false }),
    answers: [{ status: 200, description: 'The invitation.', schema: invitation }],
    errors: ['http_403', 'http_409'],
    handle: async (call) => {
      const { account, body } = call;
      refuseBeyond(account.role, body.role);
      const { made } = await invitePerson(call, {
        accountId: account.id,
        email: body.email.toLowerCase(),
        role: body.role,
      });
      return invitationOf(made);
    },
  }),
  route({
    method: 'delete',
    path: '/v1/invites/{id}',
    operationId: 'deleteInvite',
    tag,
    summary: 'Withdraw an invitation',
    description: 'Its link no longer works.',
    access: mayManage,
    params: Type.Object({ id: Type.String({ pattern: '^inv_[0-9a-f]{32}$' }) }),
    answers: [done],
    errors: ['http_404'],
    handle: async (call) => {
      const { account, params, services } = call;
      const before = await services.operations.repositories.deleteInvitation({ accountId: account.id, id: params.id });
      if (before === undefined) throw notThere();
      await call.audit({ action: 'invite.delete', target: params.id, before });
      return { done: true };
    },
  }),
  route({
    method: 'post',
    path: '/v1/invites/accept',
    operationId: 'acceptInvite',
    tag,
    summary: 'Accept an invitation',
    description:
      'With the token of the link: by the person who is signed in with the address that it was sent to, or, for an address that nobody has here yet, with a name and a password, which makes the person and signs them in.',
    access: 'anyone',
    body: Type.Object(
      { token: linkToken, name: Type.Optional(personName), password: Type.Optional(password) },
      { additionalProperties: false },
    ),
    answers: [
      {
        status: 200,
        description: 'Joined.',
        schema: Type.Object({ object: Type.Literal('membership'), account_id: Type.String(), role }),
      },
    ],
    errors: ['invalid_api_key', 'http_404', 'unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      const { users, operations } = call.services;
      const { repositories, now } = operations;
      const right = await beginAttempt(call, 'invite');
      const tokenHash = hashLinkToken(call.body.token);
      const offered = await repositories.findInvitation({ tokenHash, at: now() });
      if (offered === undefined) throw deadLink();
      const { cookie } = call.headers;
      const sender = typeof cookie === 'string' ? await users.signedIn(cookie) : undefined;
      if (sender?.viewing !== undefined) throw viewingRefusal(sender.viewing);
      // For any other user the link appears invalid.
      if (sender !== undefined && sender.email !== offered.email) throw deadLink();
      const invited = { tokenHash, email: offered.email, at: now() };
      if (sender !== undefined) {
        const joined = await repositories.acceptInvitation({ ...invited, userId: sender.userId });
        if (joined === undefined) throw deadLink();
        await right();
        await call.audit({
          action: 'invite.accept',
          accountId: joined.accountId,
          target: sender.userId,
          after: { role: joined.role },
        });
        return { object: 'membership', account_id: joined.accountId, role: joined.role };
      }
      const { name, password: text } = call.body;
      if (await repositories.hasPerson({ email: offered.email }))
        throw new ApiError('invalid_api_key', 'Sign in first: this address is already registered here.');
      if (name === undefined || text === undefined)
        throw new ApiError('unsupported_value', 'Choose a name and a password.', {
          param: name === undefined ? 'name' : 'password',
        });
      checkPassword(text);
      const joined = await repositories.joinAnew({
        ...invited,
        userId: newPersonId(),
        credentialId: newPersonId(),
        name,
        passwordHash: await users.passwords.hash(text),
      });
      if (joined === undefined) throw deadLink();
      await right();
      await call.audit({
        action: 'invite.accept',
        accountId: joined.accountId,
        target: joined.userId,
        after: { role: joined.role },
        by: { userId: joined.userId, email: offered.email },
      });
      const answered = await askAuth(call, (auth, headers) =>
        auth.api.signInEmail({ body: { email: offered.email, password: text }, headers, returnHeaders: true }),
      );
      await signedIn(call, answered);
      return withCookies(
        200,
        { object: 'membership', account_id: joined.accountId, role: joined.role },
        answered.cookies,
      );
    },
  }),
];

/** A member can neither give nor take a role above their own. */
function refuseBeyond(own: Role, other: Role): void {
  if (roles.indexOf(other) < roles.indexOf(own))
    throw new ApiError('http_403', `This needs the role ${other}; yours is ${own}.`);
}

async function memberMeant(call: Pick<Call, 'account' | 'services'> & { readonly params: { readonly id: string } }) {
  const { account, params, services } = call;
  const found = await services.operations.repositories.getMember({ accountId: account.id, userId: params.id });
  if (found === undefined) throw notThere();
  return found;
}

async function changeRole(
  { account, services }: Pick<Call, 'account' | 'services'>,
  { userId }: MemberRow,
  to: Role | null,
): Promise<void> {
  try {
    await services.operations.repositories.setMemberRole({ accountId: account.id, userId, role: to });
  } catch (error) {
    if (error instanceof StoreError && error.code === 'conflict')
      throw new ApiError('http_409', 'An account needs an owner: make somebody else an owner first.', { cause: error });
    throw error;
  }
}

/** Whose last sign-in and budget the sender may see, as in the audit log: everybody's, or only their own. */
function maySeeMore({ account, principal }: Pick<Call, 'account' | 'principal'>): (userId: string) => boolean {
  const seesAll = account.role === 'owner' || account.role === 'admin';
  const own = principal.kind === 'user' ? principal.userId : undefined;
  return (userId) => seesAll || userId === own;
}

/** Data about members that is not in their rows. */
interface More {
  /** Times of the last sign-in, by the member's id. */
  readonly signIns: ReadonlyMap<string, number>;
  /** Budgets, by the member's id. */
  readonly budgets: ReadonlyMap<string, BudgetStatus>;
}

/** Reads it for the members whose data the sender may see. */
async function moreOf(
  { operations: { repositories, now } }: Pick<AccountServices, 'operations'>,
  accountId: string,
  members: readonly MemberRow[],
  maySee: (userId: string) => boolean,
): Promise<More> {
  const userIds = members.map(({ userId }) => userId).filter(maySee);
  const signIns = await repositories.lastSignIns({ userIds });
  const subjects = userIds.map((userId) => memberSubject(accountId, userId));
  const budgets = await repositories.budgetsOf({ subjects, at: now() });
  return {
    signIns: new Map(signIns.map(({ userId, at }) => [userId, at])),
    budgets: new Map(budgets.map((budget) => [readMemberSubject(budget.balance.subject)!.userId, budget])),
  };
}

export async function membersPage(
  services: Pick<AccountServices, 'operations'>,
  accountId: string,
  { limit = 20, after }: Static<typeof membersQuery>,
  maySee: (userId: string) => boolean,
) {
  const rows = await services.operations.repositories.listMembers({ accountId, limit: limit + 1, after });
  const more = await moreOf(services, accountId, rows, maySee);
  return listOf(
    rows,
    limit,
    (row) => memberOf(row, more),
    ({ userId }) => userId,
  );
}

const memberOf = ({ userId, name, email, role, joinedAt }: MemberRow, { signIns, budgets }: More) => ({
  id: userId,
  object: 'member' as const,
  name,
  email,
  role,
  joined_at: secondsOf(joinedAt),
  // Sign-ins before they joined are private.
  last_sign_in_at: (signIns.get(userId) ?? 0) < joinedAt ? null : secondsOf(signIns.get(userId)!),
  ...limitOf(budgets.get(userId)),
});

interface Invited {
  readonly accountId: string;
  readonly email: string;
  readonly role: InvitationRow['role'];
}

/** Creates an invitation, mails it, and notes it in the audit log. */
export async function invitePerson(
  call: Pick<Call, 'principal' | 'services' | 'audit'>,
  invited: Invited,
): Promise<{ readonly made: InvitationRow; readonly token: string }> {
  const { principal, services } = call;
  const { accountId, email: address, role: given } = invited;
  const { repositories, newId, now } = services.operations;
  const token = newLinkToken();
  const at = now();
  const made: InvitationRow = {
    id: `inv_${Buffer.from(newId()).toString('hex')}`,
    email: address,
    role: given,
    invitedBy: principal.kind === 'user' ? principal.userId : principal.kind === 'key' ? principal.keyId : '',
    createdAt: at,
    expiresAt: at + invitedFor * 86_400_000,
  };
  await repositories.createInvitation({ ...made, accountId, tokenHash: token.hash });
  await mailInvitation(services, { ...invited, token: token.text });
  await call.audit({ action: 'invite.create', target: made.id, after: { email: address, role: given }, accountId });
  return { made, token: token.text };
}

/** Sends the link of an invitation, or leaves it in the outbox where no mail server is configured. */
export async function mailInvitation(
  services: Call['services'],
  { accountId, email: address, role: given, token }: Invited & { readonly token: string },
): Promise<void> {
  const { name = accountId } = (await services.operations.repositories.getAccount({ accountId })) ?? {};
  await services.mailer.send({
    to: address,
    kind: 'invitation',
    accountId,
    ...invitationMail(services.accountUrl(), token, { account: name, role: given, days: invitedFor }),
  });
}

const invitationOf = ({ id, email, role, invitedBy, createdAt, expiresAt }: InvitationRow) => ({
  id,
  object: 'invite' as const,
  email,
  role,
  invited_by: invitedBy,
  created_at: secondsOf(createdAt),
  expires_at: secondsOf(expiresAt),
});
