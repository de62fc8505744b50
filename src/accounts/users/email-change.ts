import { createHash } from 'node:crypto';

import type { Repositories } from '../../store/repositories/repositories.ts';

export interface EmailChange {
  readonly from: string;
  readonly to: string;
}

/**
 * The email change that a link's token is for; undefined: it confirms the user's current address. The token is a JWT of better-auth (RFC
 * 7519), whose signature is not checked here.
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
 * Stores the link as a row, which ends like the user's other links (`one-time-secrets.ts`). The signature alone would keep it valid for a
 * day, regardless of what the user does meanwhile.
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

/** Whether the link is still valid for this user. */
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
