import type { Call } from './route.ts';

/**
 * The requests that a sender may see individually, and by key or user: owners, admins and billing see all of the account's; a
 * developer or viewer sees those of their own keys. A management key with such a role sees those of keys without a user, as it sees
 * the keys themselves. Sums of the whole account, also by model and label, are for every role (docs/usage.md).
 */
export function visibleUsage({ account, principal }: Pick<Call, 'account' | 'principal'>): {
  readonly ownerId?: string | null;
} {
  if (account.role !== 'developer' && account.role !== 'viewer') return {};
  return { ownerId: principal.kind === 'user' ? principal.userId : null };
}
