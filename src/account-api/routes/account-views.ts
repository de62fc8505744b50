import Type from 'typebox';

import { beginView, endViews } from '../../accounts/account-views.ts';
import { operationsOf } from '../operations-of.ts';
import { route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { accountId, liveAccount } from '../server-account.ts';
import { secondsOf } from '../wire.ts';
import { personOf } from './me.ts';
import { done } from './sign-in.ts';
import { ApiError } from '../../platform/errors.ts';

/** Operators see an account as a viewer of it does. */
export const accountViewRoutes: readonly AccountRoute[] = [
  route({
    method: 'post',
    path: '/v1/admin/accounts/{id}/view',
    operationId: 'viewAccount',
    tag: 'Server',
    summary: 'View an account, read-only',
    description:
      'For 30 minutes your session has the rights of a viewer of the account and no others, in every tab; `leaveAccount`, or signing out, ends it earlier. Beginning and end are in the audit log of the account.',
    access: 'operator',
    stepUp: true,
    params: Type.Object({ id: accountId }),
    answers: [
      {
        status: 201,
        description: 'Your session views the account.',
        schema: Type.Object({
          object: Type.Literal('account_view'),
          account_id: Type.String(),
          until: Type.Integer({ description: 'Unix seconds.' }),
        }),
      },
    ],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      if (call.principal.kind !== 'user')
        throw new ApiError('http_403', 'This is for people who are signed in: a key has no session.');
      const account = await liveAccount(call, call.params.id);
      const until = await beginView(account, call.principal, operationsOf(call));
      return { object: 'account_view', account_id: account, until: secondsOf(until) };
    },
  }),
  route({
    method: 'delete',
    path: '/v1/auth/view',
    operationId: 'leaveAccount',
    tag: 'Sign-in',
    summary: 'Leave the account that you view',
    description: 'Your session has its own rights again. The same if it views no account.',
    access: 'user',
    evenViewing: true,
    answers: [done],
    handle: async (call) => {
      const { userId, sessionId } = personOf(call);
      await endViews(operationsOf(call), { userId, sessionId });
      return { done: true };
    },
  }),
];
