import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';

/** For those who work on the console: every component, in every state. No page leads here. */
const galleryRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/gallery',
  component: lazyPage('gallery', () => import('./gallery-page.tsx')),
});

export const area: Area = { name: 'gallery', navigation: [], routes: [galleryRoute] };
