import { releasedObject } from '../account-api/released-object.ts';
import type { Context } from './context.ts';
import { writing } from './database.ts';

/** Removes the codes and passkeys of a user who has lost them, signs them out everywhere, and leaves them a mail. */
export async function releasePerson(context: Context, email: string): Promise<number> {
  const released = releasedObject(await writing(context, { kind: 'release_person', email }));
  const { had_two_factor: hadCodes, passkeys, sessions } = released;
  context.print.result(released, [
    `${released.email} signs in with their password alone from now on: ${hadCodes ? 'codes' : 'no codes'} and ` +
      `${passkeys} ${passkeys === 1 ? 'passkey' : 'passkeys'} removed, ${sessions} ${sessions === 1 ? 'session' : 'sessions'} ended.`,
  ]);
  return 0;
}
