import type { Viewing } from '../store/repositories/users.ts';
import { ApiError } from '../platform/errors.ts';
import type { AccountRoute } from './route.ts';

/** What a session that looks at an account as a viewer is refused; `viewing_account` tells pages which account it is. */
export const viewingRefusal = ({ accountId, name }: Viewing): ApiError =>
  new ApiError('http_403', `You view ${name} (${accountId}), read-only. Leave it first.`, {
    extra: { viewing_account: accountId },
  });

/**
 * An operator who looks at an account reads what a viewer of it reads. They change nothing, neither there nor elsewhere, and prove
 * nothing: what needs a recent proof of identity belongs to their own rights, which come back when they leave.
 */
export function refuseWhileViewing({ method, access, stepUp, evenViewing }: AccountRoute, viewing: Viewing): void {
  if (evenViewing === true) return;
  if (method !== 'get' || stepUp === true || access === 'operator') throw viewingRefusal(viewing);
}
