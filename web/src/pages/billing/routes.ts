import { createRoute, redirect } from '@tanstack/react-router';

import { flag, oneOf, searchOf } from '../../app/filters.ts';
import { shellRoute } from '../../app/roots.tsx';

export const billingRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/billing',
  /** `add`: the dialog to pay is open. `checkout`: a person comes back from the page of the payment provider. */
  validateSearch: searchOf({
    add: flag,
    checkout: oneOf(['done', 'cancelled']),
    view: oneOf(['movements', 'invoices', 'receipts']),
  }),
});

/** `topup_url` of every 402. */
export const topupRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/topup',
  beforeLoad: () => {
    throw redirect({ to: '/billing', search: { add: true }, replace: true } as never);
  },
});
