import { createRoute } from '@tanstack/react-router';

import { flag, searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const alertsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/alerts',
  /** `add`: the dialog for a new alert is open. */
  validateSearch: searchOf({ add: flag }),
});

export const endpointRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/alerts/webhooks/$id',
  /** `delivery`: the one whose dialog is open. */
  validateSearch: searchOf({ delivery: text }),
});
