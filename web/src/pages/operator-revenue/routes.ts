import { createRoute } from '@tanstack/react-router';

import { oneOf, searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const revenueRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/revenue',
  /** `month`: `2027-06`; this one when it is left out. */
  validateSearch: searchOf({ by: oneOf(['account', 'tier', 'month']), month: text }),
});
