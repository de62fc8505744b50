import { randomBase62 } from '../accounts/base62.ts';
import { ownerLinkUrl } from '../accounts/owner.ts';
import { publicUrl } from '../config/public-url.ts';
import { askForStatus } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import { Passwords } from '../accounts/users/password.ts';
import type { Context } from './context.ts';
import { writing } from './database.ts';

/** Prints the link that creates the owner, with the address of the running service, or the one it would have. */
export async function printOwnerLink(context: Context): Promise<number> {
  const { config, print } = context;
  const status = await askForStatus(controlSocketPath(config.storage.directory));
  const running = status === 'other' ? undefined : status?.accountUrl;
  const answer = await writing(context, { kind: 'owner_link' });
  const url = ownerLinkUrl(running ?? publicUrl(config.server.account), answer.token);
  print.result({ url, expires_at: new Date(answer.expiresAt).toISOString() }, [url]);
  if (!print.json)
    print.say(
      `It works once, within 30 minutes${status === undefined ? ', while the service is running' : ''}: the person who opens it becomes the operator of this server.`,
    );
  return 0;
}

/** Creates the owner with a generated password, or gives one to the existing user with this address, which ends all their sessions. */
export async function createOwner(
  context: Context,
  { email, name }: { readonly email: string; readonly name: string },
): Promise<number> {
  const password = randomBase62(20);
  const passwordHash = await new Passwords().hash(password);
  const answer = await writing(context, { kind: 'create_owner', email, name, passwordHash });
  context.print.result({ user_id: answer.userId, email: answer.email, password }, [
    `${answer.email} is now an operator of this server. The password is shown only once:`,
    '',
    `  ${password}`,
  ]);
  return 0;
}
