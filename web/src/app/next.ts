/**
 * Where a person goes after signing in: a page of this host, or the first one. A link may carry any text in `next`: `//evil`,
 * `/\evil` and `javascript:` are not followed, since the browser's own parser says to which origin it leads.
 */
export function ownPath(next: unknown): string {
  if (typeof next !== 'string' || !next.startsWith('/') || !URL.canParse(next, location.origin)) return '/';
  const url = new URL(next, location.origin);
  return url.origin === location.origin ? url.pathname + url.search + url.hash : '/';
}
