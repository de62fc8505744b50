import type { Context } from './context.ts';
import { writing } from './database.ts';

/** Removes the codes and passkeys of a user who has lost them, signs them out everywhere, and leaves them a mail. */
export async function releasePerson(context: Context, email: string): Promise<number> {
  const answer = await writing(context, { kind: 'release_person', email });
  const { userId, hadTwoFactor, passkeys, sessions } = answer;
  context.print.result({ user_id: userId, email: answer.email, had_two_factor: hadTwoFactor, passkeys, sessions }, [
    `${answer.email} signs in with their password alone from now on: ${hadTwoFactor ? 'codes' : 'no codes'} and ` +
      `${passkeys} ${passkeys === 1 ? 'passkey' : 'passkeys'} removed, ${sessions} ${sessions === 1 ? 'session' : 'sessions'} ended.`,
  ]);
  return 0;
}
