import { changes, loads, option, word } from '../command-row.ts';
import type { CommandRow } from '../command-row.ts';

export const ownerCommands: readonly CommandRow[] = [
  loads('link', 'print a link that makes its user the owner: works once, for 30 minutes; earlier links end', [], () =>
    import('../owner.ts').then(({ printOwnerLink }) => printOwnerLink),
  ),
  loads(
    'create',
    'create the owner, or set a new password for them; it is shown only once',
    [
      option('--email <address>', 'e-mail address to sign in with').makeOptionMandatory(),
      option('--name <name>', 'name, as others see it', undefined, 'Owner'),
    ],
    () => import('../owner.ts').then(({ createOwner }) => createOwner),
  ),
];

export const peopleCommands: readonly CommandRow[] = [
  changes({
    name: 'release',
    about:
      'remove the second factors and passkeys of a person who has lost them; they then sign in with their password',
    takes: [word('<email>', 'their address')],
    ask: (_options, [email]) => ({ kind: 'release_person', email }),
    done: async (answer) => {
      const { releasedObject } = await import('../../account-api/released-object.ts');
      const released = releasedObject(answer);
      const { had_two_factor: hadCodes, passkeys, sessions } = released;
      return {
        json: released,
        lines: [
          `${released.email} signs in with their password alone from now on: ${hadCodes ? 'codes' : 'no codes'} and ` +
            `${passkeys} ${passkeys === 1 ? 'passkey' : 'passkeys'} removed, ${sessions} ${sessions === 1 ? 'session' : 'sessions'} ended.`,
        ],
      };
    },
  }),
];
