import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { oneOf, searchOf, text } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { openRoute } from '../../app/roots.tsx';

const getParentRoute = () => openRoute;
const page = (load: Parameters<typeof lazyPage>[1]) => lazyPage('sign-in', load);

export const signInRoute = createRoute({
  getParentRoute,
  path: '/sign-in',
  /** `next` is followed only when it is a page of this host (`ownPath`). */
  validateSearch: searchOf({ next: text, sign_in: oneOf(['failed']) }),
  component: page(() => import('./sign-in.tsx')),
});
/** The owner's link that a first start prints. */
const welcomeRoute = createRoute({
  getParentRoute,
  path: '/welcome',
  component: page(() => import('./welcome.tsx')),
});
const signUpRoute = createRoute({
  getParentRoute,
  path: '/sign-up',
  component: page(() => import('./sign-up.tsx')),
});
const forgotRoute = createRoute({
  getParentRoute,
  path: '/forgot-password',
  component: page(() => import('./forgot-password.tsx')),
});
const resetRoute = createRoute({
  getParentRoute,
  path: '/reset-password',
  component: page(() => import('./reset-password.tsx')),
});
/** Of a new person, or of a new address of one. */
const verifyRoute = createRoute({
  getParentRoute,
  path: '/verify-email',
  component: page(() => import('./verify-email.tsx')),
});
const invitationRoute = createRoute({
  getParentRoute,
  path: '/invitation',
  component: page(() => import('./invitation.tsx')),
});

export const area: Area = {
  name: 'sign-in',
  navigation: [],
  routes: [],
  openRoutes: [signInRoute, welcomeRoute, signUpRoute, forgotRoute, resetRoute, verifyRoute, invitationRoute],
};
