import { StoreError } from '../store/store-error.ts';
import { OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';

export interface PersonReleased {
  readonly userId: string;
  readonly email: string;
  readonly hadTwoFactor: boolean;
  readonly passkeys: number;
  readonly sessions: number;
}

/**
 * Keeps their password. The user is notified by mail, so no second factor disappears silently. Throws OperationError when there is no such
 * user.
 */
export async function releasePerson(
  input: { readonly email: string },
  { repositories, newId, now }: Pick<OperationServices, 'repositories' | 'newId' | 'now'>,
): Promise<PersonReleased> {
  const email = input.email.toLowerCase();
  const at = now();
  const mailId = `mail_${Buffer.from(newId()).toString('hex')}`;
  const released = await repositories.releasePerson({ email, at, notice: { id: mailId, ...notice } });
  if (released === undefined)
    throw new OperationError(`No person here has the address ${email}.`, {
      cause: new StoreError('not_found', 'there is no such person'),
    });
  return { email, ...released };
}

const notice = {
  subject: 'Your codes and passkeys were removed',
  body:
    'The operator of this server has removed your authenticator and your passkeys, and has signed you out ' +
    'everywhere. You sign in with your password alone until you set them up again.\n\nIf you did not ask for it, tell ' +
    'the operator of this server, and choose a new password.\n',
};
