import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { searchOf } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { ChartIcon, ListIcon } from '../../components/icons.tsx';
import { requestFilters, usageFilters } from './filter.ts';

export const requestsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/requests',
  validateSearch: searchOf(requestFilters),
  component: lazyPage('usage', () => import('./requests-page.tsx')),
});

/** By any id that a request has; several may share one. */
export const requestRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/requests/$id',
  component: lazyPage('usage', () => import('./request-page.tsx')),
});

export const usageRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/usage',
  validateSearch: searchOf(usageFilters),
  component: lazyPage('usage', () => import('./usage-page.tsx')),
});

export const area: Area = {
  name: 'usage',
  navigation: [
    {
      to: '/requests',
      label: { en: 'Requests', de: 'Anfragen', zh: '请求' },
      icon: ListIcon,
      group: 'use',
      order: 50,
    },
    {
      to: '/usage',
      label: { en: 'Usage', de: 'Nutzung', zh: '用量' },
      icon: ChartIcon,
      group: 'use',
      order: 60,
    },
  ],
  routes: [requestsRoute, requestRoute, usageRoute],
};
