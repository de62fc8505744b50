import { createRoute } from '@tanstack/react-router';

import { oneOf, searchOf, text } from '../../app/filters.ts';
import { openRoute } from '../../app/roots.tsx';

export const signInRoute = createRoute({
  getParentRoute: () => openRoute,
  path: '/sign-in',
  /** `next` is followed only when it is a page of this host (`ownPath`). */
  validateSearch: searchOf({ next: text, sign_in: oneOf(['failed']) }),
});
