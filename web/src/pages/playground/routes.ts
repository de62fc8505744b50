import { createRoute } from '@tanstack/react-router';

import { searchOf } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';
import { playgroundSearch } from './search.ts';

export const playgroundRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/playground',
  validateSearch: searchOf(playgroundSearch),
});
