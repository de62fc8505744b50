import { createRoute } from '@tanstack/react-router';

import { flag, searchOf } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const teamRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/team',
  /** `invite`: the dialog for an invitation is open. */
  validateSearch: searchOf({ invite: flag }),
});
