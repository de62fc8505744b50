import { createRoute } from '@tanstack/react-router';

import { oneOf, searchOf } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const systemRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/system',
  /** Of the history: the last hour as a whole when they are left out. */
  validateSearch: searchOf({ span: oneOf(['day', 'week']), by: oneOf(['model', 'backend']) }),
});
