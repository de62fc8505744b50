import Type from 'typebox';

import { operate } from '../../accounts/operations.ts';
import { accountOfServerSchema, accountsOfServer } from '../account-object.ts';
import { notThere } from '../input.ts';
import { operationsOf } from '../operations-of.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { accountId, liveAccount } from '../server-account.ts';
import { centsMax, microcentsPerCent, nullable, secondsOf } from '../wire.ts';
import { invitedFor, invitePerson, mailInvitation } from './members.ts';
import { email } from './sign-in.ts';

export const accountName = Type.String({ minLength: 1, maxLength: 100 });

const invitationSchema = Type.Object({
  object: Type.Literal('owner_invite'),
  email: Type.String(),
  url: Type.String({
    description: `The link: it makes the person with this address an owner, once, within ${invitedFor} days.`,
  }),
  expires_at: Type.Integer({ description: 'Unix seconds.' }),
  is_mailed: Type.Boolean({ description: 'false: no mail server is configured, so pass the link on.' }),
});

/** How operators bring customers in. */
export const customerRoutes: readonly AccountRoute[] = [
  route({
    method: 'post',
    path: '/v1/admin/accounts',
    operationId: 'createAccount',
    tag: 'Server',
    summary: 'Create an account',
    description: 'With its owner, first credit and first key, as far as they are asked for; all of it or nothing.',
    access: 'operator',
    stepUp: true,
    body: Type.Object(
      {
        name: accountName,
        owner_email: Type.Optional(email),
        credit_cents: Type.Optional(Type.Integer({ minimum: 1, maximum: centsMax, description: 'Free credit.' })),
        key_name: Type.Optional(Type.String({ minLength: 1, maxLength: 100, description: 'Creates a key.' })),
      },
      { additionalProperties: false },
    ),
    answers: [
      {
        status: 201,
        description: 'The account.',
        schema: Type.Object({
          ...accountOfServerSchema.properties,
          owner_invite: nullable(invitationSchema),
          key: nullable(Type.String({ description: 'Shown only here.' })),
        }),
      },
    ],
    handle: async (call) => {
      const { name: chosen, owner_email: ownerEmail, credit_cents: cents, key_name: keyName } = call.body;
      const creditMicrocents = cents === undefined ? undefined : String(BigInt(cents) * microcentsPerCent);
      const { accountId: id, ...made } = await operate(
        { kind: 'create_account', name: chosen, ownerEmail, creditMicrocents, keyName },
        operationsOf(call),
      );
      const invited = made.invitation && { ...made.invitation, accountId: id, role: 'owner' as const };
      if (invited !== undefined) await mailInvitation(call.services, invited);
      return {
        ...(await shownAccount(call, id)),
        owner_invite: invited === undefined ? null : invitationOf(call, invited),
        key: made.key?.key ?? null,
      };
    },
  }),
  route({
    method: 'post',
    path: '/v1/admin/accounts/{id}/invites',
    operationId: 'inviteOwner',
    tag: 'Server',
    summary: 'Invite an owner of an account',
    description: 'An earlier invitation of the same address no longer works.',
    access: 'operator',
    stepUp: true,
    params: Type.Object({ id: accountId }),
    body: Type.Object({ email }, { additionalProperties: false }),
    answers: [{ status: 201, description: 'The invitation, with its link.', schema: invitationSchema }],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      const id = await liveAccount(call, call.params.id);
      const invited = { accountId: id, email: call.body.email.toLowerCase(), role: 'owner' as const };
      const { made, token } = await invitePerson(call, invited);
      return invitationOf(call, { ...invited, token, expiresAt: made.expiresAt });
    },
  }),
];

const invitationOf = (
  { services }: Pick<Call, 'services'>,
  invited: { readonly email: string; readonly token: string; readonly expiresAt: number },
) => ({
  object: 'owner_invite' as const,
  email: invited.email,
  url: `${services.accountUrl()}/invitation#${invited.token}`,
  expires_at: secondsOf(invited.expiresAt),
  is_mailed: services.config().mail.smtp !== undefined,
});

/** An account as operators see it. */
export async function shownAccount({ services }: Pick<Call, 'services'>, id: string) {
  const { repositories, now } = services.operations;
  const found = await repositories.getAccount({ accountId: id });
  if (found === undefined || found.isSystem) throw notThere();
  const [shown] = await accountsOfServer([found], repositories, now());
  return shown!;
}
