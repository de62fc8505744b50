import { createRoute } from '@tanstack/react-router';

import { flag, searchOf } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const keysRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/keys',
  /** `create`: the dialog for a new key is open. */
  validateSearch: searchOf({ disabled: flag, create: flag }),
});

export const keyRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/keys/$id',
});
