import { createRoute } from '@tanstack/react-router';

import { flag, searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const teamRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/team',
  /** `invite`: the dialog for an invitation is open. `person`: the one whose row is gone to. */
  validateSearch: searchOf({ invite: flag, person: text }),
});
