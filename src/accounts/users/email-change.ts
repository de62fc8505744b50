import { createHash } from 'node:crypto';

import type { Repositories } from '../../store/repositories/repositories.ts';

export interface EmailChange {
  readonly from: string;
  readonly to: string;
}

/**
 * The change that a link's token is for; undefined: it confirms the user's current address. The token is a JWT of better-auth
 * (RFC 7519), whose signature is not checked here.
 */
export function emailChangeOf(token: string): EmailChange | undefined {
  try {
    const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as Record<
      string,
      unknown
    >;
    const { email, updateTo } = claims;
    return typeof email === 'string' && typeof updateTo === 'string' ? { from: email, to: updateTo } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Its signature alone would keep a link good for a day, whatever its person does meanwhile. So it is a row too, which ends like
 * other links to them (`one-time-secrets.ts`).
 */
export async function rememberChangeLink(
  repositories: Pick<Repositories, 'authStore'>,
  link: {
    readonly id: string;
    readonly userId: string;
    readonly token: string;
    readonly at: number;
    readonly expiresAt: number;
  },
): Promise<void> {
  const { id, userId: value, token, at, expiresAt } = link;
  const row = { id, identifier: identifierOf(token), value, expiresAt, createdAt: at, updatedAt: at };
  await repositories.authStore({ act: 'create', table: 'auth_verification', row });
}

/** Whether the link is still good for this person. */
export async function isChangeLinkOpen(
  repositories: Pick<Repositories, 'authStore'>,
  { userId, token, at }: { readonly userId: string; readonly token: string; readonly at: number },
): Promise<boolean> {
  const { count } = await repositories.authStore({
    act: 'count',
    table: 'auth_verification',
    where: [
      { column: 'identifier', operator: 'eq', value: identifierOf(token), connector: 'AND' },
      { column: 'value', operator: 'eq', value: userId, connector: 'AND' },
      { column: 'expiresAt', operator: 'gt', value: at, connector: 'AND' },
    ],
  });
  return count > 0;
}

const identifierOf = (token: string): string =>
  `change-email:${createHash('sha256').update(token).digest('base64url')}`;
