import { queryOptions, useQuery } from '@tanstack/react-query';

import type { Role } from '../app/area.ts';
import { accountId, chooseAccount, lookAt } from './account-choice.ts';
import { ApiFailure, client, content } from './client.ts';
import type { components, paths } from './schema.ts';

export type Me = paths['/v1/me']['get']['responses']['200']['content']['application/json'];
export type Schemas = components['schemas'];

/** What the last answer said of the account that the session views: none of a person who is signed out. */
let known: { readonly viewed: string | undefined } | undefined;

/** The whole session views an account, or leaves it, in whichever tab: then nothing of what was shown stays, not even for a moment. */
async function renewed(viewed: string | undefined): Promise<void> {
  if (known !== undefined && known.viewed !== viewed) {
    location.assign('/');
    await new Promise(() => {});
  }
  known = { viewed };
}

/** Who is signed in; null: nobody. */
export const meQuery = queryOptions({
  queryKey: ['me'],
  queryFn: async ({ signal }): Promise<Me | null> => {
    try {
      const me = await content(client.GET('/v1/me', { signal }));
      const viewed = me.viewing?.account_id;
      await renewed(viewed);
      if (viewed !== undefined) lookAt(viewed);
      // An account that they have left, or of somebody else who was signed in here before.
      else if (!me.accounts.some(({ id }) => id === accountId())) chooseAccount(me.accounts[0]?.id);
      return me;
    } catch (error) {
      if (error instanceof ApiFailure && error.status === 401) {
        known = undefined;
        return null;
      }
      throw error;
    }
  },
  staleTime: 30_000,
});

export interface Session {
  readonly me: Me;
  /** The account that is looked at; undefined: they belong to none. */
  readonly account:
    { readonly id: string; readonly name: string; readonly role: Role; readonly status: string } | undefined;
  readonly isOperator: boolean;
  /** Whether their role in the account is one of these. */
  may(roles: readonly Role[]): boolean;
}

/** Of a person who is signed in: pages inside the shell. */
export function useSession(): Session {
  const { data: me } = useQuery(meQuery);
  if (me === null || me === undefined) throw new ApiFailure(401, { code: 'signed_out', message: 'Signed out.' });
  const account = (me.accounts.find(({ id }) => id === accountId()) ?? me.accounts[0]) as Session['account'];
  return {
    me,
    account,
    isOperator: me.is_operator,
    may: (roles) => account !== undefined && roles.includes(account.role),
  };
}

export const mayManage: readonly Role[] = ['owner', 'admin'];
export const mayMakeKeys: readonly Role[] = ['owner', 'admin', 'developer'];
export const mayPay: readonly Role[] = ['owner', 'admin', 'billing'];
