import Type from 'typebox';

import { hashLinkToken } from '../../accounts/link-token.ts';
import { createOwner } from '../../accounts/owner.ts';
import { ApiError } from '../../platform/errors.ts';
import { deadLink } from '../../accounts/users/users.ts';
import { passwordLength } from '../../accounts/users/password.ts';
import { route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { askAuth, beginAttempt, email, linkToken, password, personName, signedIn, signedInAnswer } from './sign-in.ts';

/** Refuses too short and too long passwords before anything is looked up or hashed. */
export function checkPassword(text: string): void {
  if (text.length < passwordLength.min || text.length > passwordLength.max)
    throw new ApiError(
      'unsupported_value',
      `A password must have ${passwordLength.min} to ${passwordLength.max} characters.`,
      { param: 'password' },
    );
}

/** The operator. */
export const ownerRoutes: readonly AccountRoute[] = [
  route({
    method: 'post',
    path: '/v1/owner',
    operationId: 'createOwner',
    tag: 'Server',
    summary: 'Become the owner of a new server',
    description:
      'With the token of the link that the first start prints, or `tokenhouse owner link`: once, within half an hour. Makes the person who runs the server and owns its first account, and signs them in. Without it there is nothing here.',
    access: 'anyone',
    body: Type.Object({ token: linkToken, email, name: personName, password }, { additionalProperties: false }),
    answers: [signedInAnswer],
    errors: ['http_404', 'unsupported_value', 'rate_limit_exceeded'],
    handle: async (call) => {
      const { users, operations } = call.services;
      const { token, email: address, name, password: text } = call.body;
      const right = await beginAttempt(call, 'owner');
      if (!(await operations.repositories.isOwnerLink({ tokenHash: hashLinkToken(token), at: operations.now() })))
        throw deadLink();
      checkPassword(text);
      const passwordHash = await users.passwords.hash(text);
      const made = await createOwner({ email: address, name, passwordHash }, operations, token);
      if (made === undefined) throw deadLink();
      await right();
      await call.audit({ action: 'owner.create', target: made.userId, by: made });
      const answered = await askAuth(call, (auth, headers) =>
        auth.api.signInEmail({ body: { email: made.email, password: text }, headers, returnHeaders: true }),
      );
      return await signedIn(call, answered);
    },
  }),
];
