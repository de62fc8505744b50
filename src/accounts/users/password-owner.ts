import { AsyncLocalStorage } from 'node:async_hooks';

export interface PasswordOwner {
  readonly userId: string;
  readonly email: string;
}

/** better-auth reports to its hook whose password was set, but not by which call. */
const askedBy = new AsyncLocalStorage<(owner: PasswordOwner) => void>();

/** Called by better-auth's hook. */
export function passwordWasSet({ id, email }: { readonly id: string; readonly email: string }): void {
  askedBy.getStore()?.({ userId: id, email });
}

/** Returns the result of `set`, and the user whose password it has set. */
export async function withPasswordOwner<Answer>(
  set: () => Promise<Answer>,
): Promise<{ readonly answer: Answer; readonly owner: PasswordOwner }> {
  const found: { owner?: PasswordOwner } = {};
  const answer = await askedBy.run((owner) => void (found.owner = owner), set);
  if (found.owner === undefined) throw new Error('better-auth has not said whose password it has set');
  return { answer, owner: found.owner };
}
