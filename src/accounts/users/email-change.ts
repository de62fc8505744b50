export interface EmailChange {
  readonly from: string;
  readonly to: string;
}

/**
 * The change that the token of a link is for; undefined: it confirms an address that its person has. The token is a JWT of
 * better-auth (RFC 7519), whose signature is not looked at here.
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
