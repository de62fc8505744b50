import { createRoute } from '@tanstack/react-router';

import { oneOf, searchOf } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const settingsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/settings',
  validateSearch: searchOf({ view: oneOf(['security', 'account', 'data']) }),
});
