import { createRoute } from '@tanstack/react-router';

import { oneOf, searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const outboxRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/outbox',
  /** `mail`: the one that is read. */
  validateSearch: searchOf({ state: oneOf(['waiting', 'sent', 'failed']), mail: text }),
});

export const auditRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/audit',
  /** `entry`: the change whose details are open. */
  validateSearch: searchOf({ account: text, action: text, target: text, entry: text }),
});
