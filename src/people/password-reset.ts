import { AsyncLocalStorage } from 'node:async_hooks';

import type { Auth } from './auth.ts';

interface Owner {
  readonly userId: string;
  readonly email: string;
}

/** better-auth tells its hook whose password was set, and not who asked for it. */
const askedBy = new AsyncLocalStorage<(owner: Owner) => void>();

/** Called by better-auth's hook. */
export function passwordWasSet({ id, email }: { readonly id: string; readonly email: string }): void {
  askedBy.getStore()?.({ userId: id, email });
}

/** Sets the password of the person whom the token was sent to, who is the `response`. Rejects as better-auth does. */
export async function resetPassword(auth: Auth, token: string, newPassword: string, headers: Headers) {
  const set: { owner?: Owner } = {};
  const answer = await askedBy.run(
    (owner) => void (set.owner = owner),
    () => auth.api.resetPassword({ body: { token, newPassword }, headers, returnHeaders: true }),
  );
  if (set.owner === undefined) throw new Error('better-auth has not said whose password it has set');
  return { headers: answer.headers, response: set.owner };
}
