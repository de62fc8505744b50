import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRouter, RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { areas } from 'virtual:areas';

import { ApiFailure } from './api/client.ts';
import { meQuery } from './api/session.ts';
import { NotFoundPage, RouteError } from './app/errors.tsx';
import { openRoute, rootRoute, shellRoute } from './app/roots.tsx';
import { applyTheme, chosenTheme } from './app/theme.ts';
import { currentLocale } from './i18n/language.ts';
import { loadTexts } from './i18n/text.ts';
import './styles/tokens.css';
import './styles/base.css';

applyTheme(chosenTheme());
document.documentElement.lang = currentLocale();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2000,
      gcTime: 300_000,
      // What the API has refused it refuses again; what it could not do it may do in a moment.
      retry: (count, error) =>
        count < 2 && error instanceof ApiFailure && (error.status >= 500 || error.status === 429),
      retryDelay: (count, error) =>
        error instanceof ApiFailure && error.retryAfterSeconds !== undefined
          ? error.retryAfterSeconds * 1000
          : 300 * 2 ** count,
    },
  },
});

// A session that has ended: the person signs in, and comes back.
queries.getQueryCache().subscribe(({ type, query }) => {
  if (type !== 'updated' || query.queryKey[0] !== 'api') return;
  const { error } = query.state;
  const me = queries.getQueryData(meQuery.queryKey);
  // The session views an account, or does no longer, because of another tab or because the time is up.
  if (
    error instanceof ApiFailure &&
    (error.status === 403 || error.status === 404) &&
    (error.isViewing || (me !== null && me !== undefined && me.viewing !== null))
  )
    void queries.invalidateQueries(meQuery);
  if (error instanceof ApiFailure && error.status === 401 && queries.getQueryData(meQuery.queryKey) !== null) {
    queries.setQueryData(meQuery.queryKey, null);
    void router.navigate({ href: `/sign-in?next=${encodeURIComponent(location.pathname + location.search)}` });
  }
});

const routeTree = rootRoute.addChildren([
  shellRoute.addChildren(areas.flatMap(({ routes }) => [...routes])),
  openRoute.addChildren(areas.flatMap(({ openRoutes = [] }) => [...openRoutes])),
]);

const router = createRouter({
  routeTree,
  context: { queries },
  defaultPreload: 'intent',
  defaultPendingMs: 150,
  // Of each page, inside its parent: one that fails leaves the shell as it is.
  defaultErrorComponent: RouteError,
  defaultNotFoundComponent: () => <NotFoundPage />,
  scrollRestoration: true,
});

// The page, and who is signed in, are on their way while the texts are; what fails is said where it is needed.
const [matched] = router.getMatchedRoutes(location.pathname);
for (const { options } of matched) void options.component?.preload?.();
if (matched.includes(shellRoute)) queries.query(meQuery).catch(() => {});

await loadTexts('app');
createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
