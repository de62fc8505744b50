import { everyAccount } from '../accounts/every-account.ts';
import { askRunningService } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';

/** A conversation lasts longer than the longest request. The key is normally revoked earlier; this is for a command that is killed. */
const expiresAfterMs = 12 * 3_600_000;

/** A key that lives as long as a command. */
export interface TemporaryKey {
  readonly key: string;
  revoke(): Promise<void>;
}

/**
 * A key of the oldest active account, created and revoked by the service that runs here. Anyone with access to its control socket
 * may create keys of any account, so this grants no new rights; both changes are in the audit log. Undefined if no account could
 * pay.
 */
export async function createTemporaryKey(context: Context): Promise<TemporaryKey | undefined> {
  const accountId = await firstAccount(context);
  if (accountId === undefined) return undefined;
  const socket = controlSocketPath(context.config.storage.directory);
  const made = await askRunningService(socket, {
    kind: 'create_key',
    accountId,
    name: 'tokenhouse chat',
    userId: 'owner',
    expiresAfterMs,
  });
  if (made === undefined) return undefined;
  return {
    key: made.key,
    revoke: async () => {
      try {
        await askRunningService(socket, { kind: 'revoke_key', keyId: made.keyId });
      } catch {
        context.print.say(`The key ${made.keyId} could not be revoked; it expires within 12 hours.`);
      }
    },
  };
}

async function firstAccount(context: Context): Promise<string | undefined> {
  return await reading(context, async ({ repositories }) => {
    let first: { readonly id: string; readonly createdAt: number } | undefined;
    for await (const account of everyAccount(repositories)) {
      const isOlder = first === undefined || account.createdAt < first.createdAt;
      if (isOlder && account.status === 'active' && account.deletedAt === null) first = account;
    }
    return first?.id;
  });
}
