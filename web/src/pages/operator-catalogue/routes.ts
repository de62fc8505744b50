import { createRoute } from '@tanstack/react-router';

import { searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const catalogueRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/catalogue',
  /** `model`: the one that is shown; `account`: whose prices. */
  validateSearch: searchOf({ model: text, account: text }),
});
