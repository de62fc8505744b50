import Type from 'typebox';

import { everyRole, roles, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { page, wholeListSchema } from '../wire.ts';

/** What each role may do: read from the routes themselves, so that it cannot be wrong. */
export const rolesRoute = (routes: () => readonly AccountRoute[]): AccountRoute =>
  route({
    method: 'get',
    path: '/v1/roles',
    operationId: 'listRoles',
    tag: 'Members',
    summary: 'List what each role may do',
    description:
      'The operations of this API that each role may call, highest role first. What some of them show or accept depends on the role too: developers and viewers see the requests of their own keys, developers change these keys alone, and nobody gives or takes a role above their own.',
    access: everyRole,
    answers: [
      {
        status: 200,
        description: 'The roles.',
        schema: wholeListSchema(
          Type.Object({
            object: Type.Literal('role'),
            role: Type.Enum([...roles]),
            operations: Type.Array(Type.String(), { description: 'Their `operationId` in the API’s document.' }),
          }),
        ),
      },
    ],
    handle: () =>
      Promise.resolve(
        page(
          roles.map((role) => ({
            object: 'role',
            role,
            operations: routes()
              .filter(({ access }) => typeof access !== 'string' && access.includes(role))
              .map(({ operationId }) => operationId),
          })),
        ),
      ),
  });
