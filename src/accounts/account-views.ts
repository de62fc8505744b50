/** Operators look at an account as a viewer of it does: read-only, for a time, and in the audit log of the account. */
import { serviceItself } from './actor.ts';
import type { OperationServices } from './operation.ts';

/** In the audit log: a view begins, and ends. */
export const viewActions: readonly string[] = ['account.view', 'account.view_end'];

export const viewForMs = 30 * 60_000;

/** Begins the view of a session, which ends by itself. Returns when. Rejects with a StoreError `conflict` if another tab was first. */
export async function beginView(
  accountId: string,
  { userId, sessionId }: { readonly userId: string; readonly sessionId: string },
  services: OperationServices,
): Promise<number> {
  const { repositories, newId, now, actor = serviceItself } = services;
  await endViews(services, { userId });
  const { requestId, address, ...who } = actor;
  const at = now();
  const expiresAt = at + viewForMs;
  const entry = {
    id: newId(),
    at,
    accountId,
    actor: who,
    action: 'account.view',
    target: accountId,
    before: null,
    after: JSON.stringify({ until: Math.floor(expiresAt / 1000) }),
    requestId,
    address,
  };
  await repositories.beginView({ sessionId, userId, expiresAt, entry });
  return expiresAt;
}

const endedAtOnce = 100;

/**
 * Ends the views that are over, of one user or of all, and that of a session which leaves its account. Returns true if there may be more.
 */
export async function endViews(
  { repositories, newId, now, actor = serviceItself }: OperationServices,
  of: { readonly userId?: string; readonly sessionId?: string } = {},
): Promise<boolean> {
  const { requestId, address } = actor;
  const entryIds = Array.from({ length: endedAtOnce }, newId);
  return (await repositories.endViews({ ...of, at: now(), requestId, address, entryIds })) === endedAtOnce;
}
