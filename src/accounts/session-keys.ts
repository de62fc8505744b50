/** Keys of the console itself: one for each session and account, which nobody has to make, and which ends with the session. */
import type { ApiKey } from '../store/repositories/keys.ts';
import type { OperationServices } from './operation.ts';
import { operate } from './operations.ts';

/** What it may spend in its life, and how long that is: it is made without a second proof of identity. */
export const sessionKeyLimits = { microcents: 100_000_000n, lifeMs: 8 * 3_600_000 } as const;

/** Each tab of a browser asks for a secret of its own: the one before works on for an hour. */
const overlapMs = 3_600_000;

export interface SessionKey {
  readonly keyId: string;
  /** Shown once, and not stored. */
  readonly key: string;
  readonly expiresAt: number;
}

/** The key of this session, made now or with another secret: its budget and its end stay, however often it is asked for. */
export async function sessionKey(
  of: { readonly accountId: string; readonly userId: string; readonly sessionId: string },
  services: OperationServices,
): Promise<SessionKey> {
  const { repositories, now } = services;
  const find = () => repositories.findSessionKey({ accountId: of.accountId, sessionId: of.sessionId, at: now() });
  const renewed = async ({ id, expiresAt }: ApiKey): Promise<SessionKey> => {
    const { key } = await operate({ kind: 'rotate_key', keyId: id, overlapMs }, services);
    return { keyId: id, key, expiresAt: expiresAt! };
  };
  const known = await find();
  if (known !== undefined) return await renewed(known);
  const expiresAt = now() + sessionKeyLimits.lifeMs;
  const budget = { microcents: String(sessionKeyLimits.microcents), per: 'total' } as const;
  try {
    const { keyId, key } = await operate({ kind: 'create_key', name: 'Console', ...of, expiresAt, budget }, services);
    return { keyId, key, expiresAt };
  } catch (error) {
    // Another request of the session was first.
    const made = await find();
    if (made === undefined) throw error;
    return await renewed(made);
  }
}

const endedAtOnce = 100;

/**
 * Revokes the keys of sessions that are over. Returns true if there may be more. In the name of a person only those of this person: the
 * audit log of another account says nothing of strangers.
 */
export async function endSessionKeys(services: OperationServices, userId?: string): Promise<boolean> {
  const { repositories, now } = services;
  const ids = await repositories.keysOfEndedSessions({ at: now(), limit: endedAtOnce, userId });
  for (const keyId of ids) await operate({ kind: 'revoke_key', keyId }, services);
  return ids.length === endedAtOnce;
}
