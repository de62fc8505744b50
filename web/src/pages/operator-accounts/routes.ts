import { createRoute } from '@tanstack/react-router';

import { flag, oneOf, searchOf, text } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const accountsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/accounts',
  /** `open`: one of the dialogs of the page. */
  validateSearch: searchOf({
    search: text,
    status: oneOf(['active', 'suspended']),
    deleted: flag,
    open: oneOf(['create', 'release']),
  }),
});

export const accountRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/accounts/$id',
  validateSearch: searchOf({ view: oneOf(['people', 'suspensions']) }),
});
