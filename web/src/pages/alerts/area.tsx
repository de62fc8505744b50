import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { BellIcon } from '../../components/icons.tsx';
import { alertsRoute, endpointRoute } from './routes.ts';

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
  routes: [
    alertsRoute.update({ component: lazyPage('alerts', () => import('./alerts-page.tsx')) }),
    endpointRoute.update({ component: lazyPage('alerts', () => import('./endpoint-page.tsx')) }),
  ],
};
