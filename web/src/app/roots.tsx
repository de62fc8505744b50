import { createRootRouteWithContext, createRoute, redirect } from '@tanstack/react-router';
import type { QueryClient } from '@tanstack/react-query';

import { meQuery } from '../api/session.ts';
import { OpenFrame, Shell } from './shell.tsx';
import { takeNext } from './next.ts';
import { Root } from './root.tsx';

export interface RouterContext {
  readonly queries: QueryClient;
}

export const rootRoute = createRootRouteWithContext<RouterContext>()({
  component: Root,
});

/** The parent of pages for people who are signed in; others are asked to, and come back. */
export const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  beforeLoad: async ({ context, location }) => {
    const me = await context.queries.query(meQuery);
    const fromProvider = location.pathname === '/' ? takeNext() : undefined;
    if (me !== null) {
      if (fromProvider !== undefined) throw redirect({ href: fromProvider });
      return;
    }
    const isFailed = (location.search as { readonly sign_in?: unknown }).sign_in === 'failed';
    const next = fromProvider ?? (location.pathname === '/' ? undefined : location.href);
    throw redirect({
      to: '/sign-in',
      search: {
        ...(isFailed ? { sign_in: 'failed' } : {}),
        ...(next === undefined ? {} : { next }),
      },
    } as never);
  },
  component: Shell,
});

/** The parent of pages for everybody. */
export const openRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'open',
  component: OpenFrame,
});
