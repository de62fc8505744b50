/**
 * Where a person goes after signing in: a page of this host, or the first one. A link may carry any text in `next`: `//evil`,
 * `/\\evil` and `javascript:` are not followed, since the browser's own parser says to which origin it leads.
 */
export const ownPath = (next: unknown): string => pathWithin(next, location.origin);

export function pathWithin(next: unknown, origin: string): string {
  if (typeof next !== 'string' || !next.startsWith('/') || !URL.canParse(next, origin)) return '/';
  const url = new URL(next, origin);
  // `/.//evil` is a path of this host that begins like the address of another.
  return url.origin === origin && !url.pathname.startsWith('//') ? url.pathname + url.search + url.hash : '/';
}

/** A provider sends everybody back to the first page, in the same tab, which then leads on. */
export const rememberNext = (next: unknown): void => sessionStorage.setItem('next', ownPath(next));

/** Only once; undefined: nothing was remembered. */
export function takeNext(): string | undefined {
  const next = sessionStorage.getItem('next');
  sessionStorage.removeItem('next');
  return next === null || next === '/' ? undefined : ownPath(next);
}
