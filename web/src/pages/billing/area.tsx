import { createRoute, redirect } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { flag, oneOf, searchOf } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { CardIcon } from '../../components/icons.tsx';

export const billingRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/billing',
  /** `add`: the dialog to pay is open. `checkout`: a person comes back from the page of the payment provider. */
  validateSearch: searchOf({
    add: flag,
    checkout: oneOf(['done', 'cancelled']),
    view: oneOf(['movements', 'invoices', 'receipts']),
  }),
  component: lazyPage('billing', () => import('./billing-page.tsx')),
});

/** `topup_url` of every 402. */
const topupRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/topup',
  beforeLoad: () => {
    throw redirect({ to: '/billing', search: { add: true }, replace: true } as never);
  },
});

export const area: Area = {
  name: 'billing',
  navigation: [
    {
      to: '/billing',
      label: { en: 'Billing', de: 'Abrechnung', zh: '账单' },
      icon: CardIcon,
      group: 'money',
      order: 10,
    },
  ],
  routes: [billingRoute, topupRoute],
};
