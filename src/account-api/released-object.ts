import Type from 'typebox';
import type { Static } from 'typebox';

import type { PersonReleased } from '../accounts/release-person.ts';

export const releasedSchema = Type.Object({
  object: Type.Literal('person.released'),
  id: Type.String(),
  email: Type.String(),
  had_two_factor: Type.Boolean(),
  passkeys: Type.Integer(),
  sessions: Type.Integer(),
});

/** The second factors of a user that were removed. */
export const releasedObject = (released: PersonReleased): Static<typeof releasedSchema> => ({
  object: 'person.released',
  id: released.userId,
  email: released.email,
  had_two_factor: released.hadTwoFactor,
  passkeys: released.passkeys,
  sessions: released.sessions,
});
