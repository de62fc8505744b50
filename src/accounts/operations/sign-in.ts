/** Operations on the people who sign in. */
import Type from 'typebox';

import { theServer, theUser } from '../audit-subjects.ts';
import { createOwner, makeOwnerLink } from '../owner.ts';
import { operation } from '../perform.ts';
import { releasePerson } from '../release-person.ts';
import type { PersonReleased } from '../release-person.ts';
import { text } from '../request-schema.ts';

export const signInOperations = {
  /** Creates a new link for the future operator, replacing the previous one. */
  owner_link: operation({
    schema: Type.Object({}),
    audit: { action: 'owner.link', subject: theServer },
    run: (_input, services) => makeOwnerLink(services),
  }),

  /** Creates a user who operates the server and owns its first account. */
  create_owner: operation({
    schema: Type.Object({
      email: text,
      name: text,
      /** Computed by `Passwords`: the password itself never leaves the place where it was typed. */
      passwordHash: text,
    }),
    audit: {
      action: 'owner.create',
      subject: theUser(({ userId }) => ({ user_id: userId })),
      unwritten: ['passwordHash'],
    },
    run: async (input, services) => (await createOwner(input, services))!,
  }),

  /** Removes the codes and passkeys of a user who has lost them, and ends their sessions. Their password stays. */
  release_person: operation({
    schema: Type.Object({ email: text }),
    audit: {
      action: 'person.release',
      subject: theUser(({ userId, hadTwoFactor, passkeys, sessions }: PersonReleased) => ({
        user_id: userId,
        had_two_factor: hadTwoFactor,
        passkeys,
        sessions,
      })),
    },
    run: releasePerson,
  }),
};
