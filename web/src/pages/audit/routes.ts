import { createRoute } from '@tanstack/react-router';

import { oneOf, searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const auditRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/audit',
  /** `entry`: the change whose details are open. */
  validateSearch: searchOf({
    actor: text,
    action: text,
    target: text,
    since: oneOf(['today', '7d', '30d', '90d']),
    entry: text,
  }),
});
