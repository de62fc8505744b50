import type { Auth } from './auth.ts';
import { withPasswordOwner } from './password-owner.ts';

/** Sets the password of the user to whom the token was sent, who is the `response`. Rejects like better-auth. */
export async function resetPassword(auth: Auth, token: string, newPassword: string, headers: Headers) {
  const { answer, owner } = await withPasswordOwner(() =>
    auth.api.resetPassword({ body: { token, newPassword }, headers, returnHeaders: true }),
  );
  return { headers: answer.headers, response: owner };
}
