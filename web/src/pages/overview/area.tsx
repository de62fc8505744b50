import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { HomeIcon } from '../../components/icons.tsx';

const overviewRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/',
  component: lazyPage('overview', () => import('./overview-page.tsx')),
});

export const area: Area = {
  name: 'overview',
  navigation: [
    { to: '/', label: { en: 'Overview', de: 'Übersicht', zh: '概览' }, icon: HomeIcon, group: 'use', order: 10 },
  ],
  routes: [overviewRoute],
};
