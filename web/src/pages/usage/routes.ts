import { createRoute } from '@tanstack/react-router';

import { searchOf } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';
import { requestFilters, usageFilters } from './filter.ts';

export const requestsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/requests',
  validateSearch: searchOf(requestFilters),
});

/** By any id that a request has; several may share one. */
export const requestRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/requests/$id',
});

export const usageRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/usage',
  validateSearch: searchOf(usageFilters),
});
