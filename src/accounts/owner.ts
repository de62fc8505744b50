import { createHmac, randomUUID } from 'node:crypto';

import { hashLinkToken, newLinkToken } from './link-token.ts';
import { checkedMailAddress } from './mail-address.ts';
import { checkedText } from './operation.ts';
import type { OperationServices } from './operation.ts';

export interface OwnerLink {
  /** Not stored. */
  readonly token: string;
  readonly expiresAt: number;
}

export interface OwnerMade {
  readonly userId: string;
  readonly email: string;
}

type Services = Pick<OperationServices, 'repositories' | 'now'>;

/** Valid once, within half an hour. */
export const ownerLinkMs = 30 * 60_000;

/** The URL of the page that it opens; the token is after the `#`, so no server or log sees it. */
export const ownerLinkUrl = (accountUrl: string, token: string): string => `${accountUrl}/welcome#${token}`;

export async function makeOwnerLink({ repositories, now }: Services): Promise<OwnerLink> {
  const token = newLinkToken();
  const expiresAt = now() + ownerLinkMs;
  await repositories.setOwnerLink({ tokenHash: token.hash, expiresAt });
  return { token: token.text, expiresAt };
}

/**
 * The link printed at startup while the server has no operator. All processes that start on the same ledger within its half hour print the
 * same one: it is derived from their secret and its expiry, and is useless without its row. Call it under `Store.alone`. undefined: there
 * is an operator, or a link from `makeOwnerLink`, which stays valid.
 */
export async function firstOwnerLink({
  repositories,
  now,
  secret,
}: Services & Pick<OperationServices, 'secret'>): Promise<OwnerLink | undefined> {
  if (await repositories.hasOperator({})) return undefined;
  const linkUntil = (expiresAt: number): OwnerLink & { readonly hash: Uint8Array } => {
    const token = createHmac('sha256', secret.signIn).update(`first owner link ${expiresAt}`).digest('base64url');
    return { token, hash: hashLinkToken(token), expiresAt };
  };
  const known = await repositories.getOwnerLink({});
  if (known !== undefined && known.expiresAt > now()) {
    const link = linkUntil(known.expiresAt);
    return Buffer.from(known.tokenHash).equals(link.hash) ? link : undefined;
  }
  const link = linkUntil(now() + ownerLinkMs);
  await repositories.setOwnerLink({ tokenHash: link.hash, expiresAt: link.expiresAt });
  return link;
}

/**
 * Creates the owner in one step. With a `token`, only while its link is valid, which this uses up; undefined: it is not valid. Throws
 * OperationError for an invalid address or name.
 */
export async function createOwner(
  input: { readonly email: string; readonly name: string; readonly passwordHash: string },
  { repositories, now }: Services,
  token?: string,
): Promise<OwnerMade | undefined> {
  const email = checkedMailAddress(input.email);
  const made = await repositories.createOwner({
    userId: newPersonId(),
    credentialId: newPersonId(),
    name: checkedText(input.name, 'A name', 100, 'name'),
    email,
    passwordHash: input.passwordHash,
    tokenHash: token === undefined ? undefined : hashLinkToken(token),
    at: now(),
  });
  return made === undefined ? undefined : { userId: made.userId, email };
}

/** Returns an id in the format that better-auth is configured to use. */
export const newPersonId = (): string => randomUUID().replaceAll('-', '');
