import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { openRoute } from '../../app/roots.tsx';
import { signInRoute } from './routes.ts';

const getParentRoute = () => openRoute;
const page = (load: Parameters<typeof lazyPage>[1]) => lazyPage('sign-in', load);

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
  openRoutes: [
    signInRoute.update({ component: page(() => import('./sign-in.tsx')) }),
    welcomeRoute,
    signUpRoute,
    forgotRoute,
    resetRoute,
    verifyRoute,
    invitationRoute,
  ],
};
