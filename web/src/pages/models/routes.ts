import { createRoute } from '@tanstack/react-router';

import { searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const modelsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/models',
  validateSearch: searchOf({ q: text }),
});

export const modelRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/models/$id',
});
