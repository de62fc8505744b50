import type { AccountMade } from '../accounts/create-account.ts';
import { askForStatus, askService } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import { publicUrl } from '../config/public-url.ts';
import type { Context } from './context.ts';

/** Prints the owner's invitation link, which the running service mails if it can. */
export async function invite(
  { config, print }: Context,
  accountId: string,
  { email, token, expiresAt }: NonNullable<AccountMade['invitation']>,
) {
  const socket = controlSocketPath(config.storage.directory);
  const status = await askForStatus(socket).catch(() => undefined);
  const accountUrl = (status === 'other' ? undefined : status?.accountUrl) ?? publicUrl(config.server.account);
  let isMailed = false;
  if (status !== undefined && config.mail.smtp !== undefined) {
    try {
      isMailed = (await askService(socket, { kind: 'invite', accountId, email, token })) !== undefined;
    } catch (error) {
      print.say(`The mail could not be queued: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return {
    email,
    invitation_url: `${accountUrl}/invitation#${token}`,
    expires_at: new Date(expiresAt).toISOString(),
    is_mailed: isMailed,
  };
}
