import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { flag, searchOf } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { BellIcon } from '../../components/icons.tsx';

export const alertsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/alerts',
  /** `add`: the dialog for a new alert is open. */
  validateSearch: searchOf({ add: flag }),
  component: lazyPage('alerts', () => import('./alerts-page.tsx')),
});

export const endpointRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/alerts/webhooks/$id',
  component: lazyPage('alerts', () => import('./endpoint-page.tsx')),
});

export const area: Area = {
  name: 'alerts',
  navigation: [
    {
      to: '/alerts',
      label: { en: 'Alerts & webhooks', de: 'Warnungen', zh: '提醒与 Webhook' },
      icon: BellIcon,
      group: 'account',
      order: 20,
    },
  ],
  routes: [alertsRoute, endpointRoute],
};
