import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { StartIcon } from '../../components/icons.tsx';

const startRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/start',
  component: lazyPage('start', () => import('./start-page.tsx')),
});

export const area: Area = {
  name: 'start',
  navigation: [
    { to: '/start', label: { en: 'Start', de: 'Start', zh: '开始' }, icon: StartIcon, group: 'use', order: 20 },
  ],
  routes: [startRoute],
};
