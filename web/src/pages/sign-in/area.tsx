import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { oneOf, searchOf, text } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { openRoute } from '../../app/roots.tsx';

const page = (load: Parameters<typeof lazyPage>[1]) => lazyPage('sign-in', load);

export const signInRoute = createRoute({
  getParentRoute: () => openRoute,
  path: '/sign-in',
  /** `next` is followed only when it is a page of this host (`ownPath`). */
  validateSearch: searchOf({ next: text, sign_in: oneOf(['failed']) }),
  component: page(() => import('./sign-in.tsx')),
});

export const area: Area = {
  name: 'sign-in',
  navigation: [],
  routes: [],
  openRoutes: [signInRoute],
};
