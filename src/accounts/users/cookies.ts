import { createHmac, timingSafeEqual } from 'node:crypto';

/**
 * The prefix of this service's cookies. With an https address they are bound to exactly this host (`__Host-`), so that no other host of the
 * domain can plant one.
 */
export const cookiePrefix = (accountUrl: string): string =>
  accountUrl.startsWith('https://') ? '__Host-tokenhouse' : 'tokenhouse';

export const sessionCookie = (accountUrl: string): string => `${cookiePrefix(accountUrl)}.session_token`;

/** The header that passes a client's address to better-auth; nothing else in a request sets it. */
export const addressHeaderName = 'x-tokenhouse-address';

/** The value of a cookie as sent; undefined: absent, or sent twice. */
export function cookieOf(header: string, name: string): string | undefined {
  const values = header.split(';').flatMap((pair) => {
    const mark = pair.indexOf('=');
    return mark > 0 && pair.slice(0, mark).trim() === name ? [pair.slice(mark + 1).trim()] : [];
  });
  return values.length === 1 ? values[0] : undefined;
}

/**
 * The content of a cookie as signed by better-auth: `value.HMAC-SHA-256 in base64`, percent-encoded. undefined: not signed with this
 * secret.
 */
export function signedValue(cookie: string, secret: string): string | undefined {
  let text: string;
  try {
    text = decodeURIComponent(cookie);
  } catch {
    return undefined;
  }
  const mark = text.lastIndexOf('.');
  if (mark < 1) return undefined;
  const value = text.slice(0, mark);
  const signature = Buffer.from(text.slice(mark + 1), 'base64');
  const right = createHmac('sha256', secret).update(value).digest();
  return signature.length === right.length && timingSafeEqual(signature, right) ? value : undefined;
}
