/** Keys of the console itself: one for each session and account, which nobody has to make, and which ends with the session. */
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
  const known = await repositories.findSessionKey({ accountId: of.accountId, sessionId: of.sessionId, at: now() });
  if (known !== undefined) {
    const { key } = await operate({ kind: 'rotate_key', keyId: known.id, overlapMs }, services);
    return { keyId: known.id, key, expiresAt: known.expiresAt! };
  }
  const expiresAt = now() + sessionKeyLimits.lifeMs;
  const budget = { microcents: String(sessionKeyLimits.microcents), per: 'total' } as const;
  const { keyId, key } = await operate({ kind: 'create_key', name: 'Console', ...of, expiresAt, budget }, services);
  return { keyId, key, expiresAt };
}

const endedAtOnce = 100;

/** Revokes the keys of sessions that are over. Returns true if there may be more. */
export async function endSessionKeys(services: OperationServices): Promise<boolean> {
  const { repositories, now } = services;
  const ids = await repositories.keysOfEndedSessions({ at: now(), limit: endedAtOnce });
  for (const keyId of ids) await operate({ kind: 'revoke_key', keyId }, services);
  return ids.length === endedAtOnce;
}
