import type { Got } from '../../api/use-api.ts';

/** As the operator sees it. */
export type Account = Got<'/v1/admin/accounts/{id}'>;

/** What shows an account: asked for again after a change. */
export const refreshes = ['/v1/admin/accounts', '/v1/admin/suspensions', '/v1/credits', '/v1/ledger', '/v1/account'];
