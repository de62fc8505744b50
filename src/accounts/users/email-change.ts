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
