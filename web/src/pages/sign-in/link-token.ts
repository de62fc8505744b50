import { useState } from 'react';

/**
 * The token of a link stays behind the `#`, which no server, proxy or log sees; it leaves the address bar and the history at once.
 * Empty: the page was opened without one.
 */
export function useLinkToken(): string {
  const [token] = useState(() => {
    const found = tokenIn(location.hash);
    if (found !== '') {
      read = { path: location.pathname, token: found };
      history.replaceState(history.state, '', location.pathname);
    }
    return read?.path === location.pathname ? read.token : '';
  });
  return token;
}

/** React may ask for a first state twice; the second time the address bar has forgotten it. */
let read: { readonly path: string; readonly token: string } | undefined;

function tokenIn(hash: string): string {
  try {
    return decodeURIComponent(hash.slice(1));
  } catch {
    return '';
  }
}
