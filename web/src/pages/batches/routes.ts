import { createRoute } from '@tanstack/react-router';

import { searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const batchesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/batches',
  /** `batch`: the one whose dialog is open. */
  validateSearch: searchOf({ batch: text }),
});
