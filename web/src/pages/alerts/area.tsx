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
      actions: [
        {
          label: { en: 'Set a spending limit', de: 'Ausgabengrenze setzen', zh: '设置支出上限' },
          roles: ['owner', 'admin'],
        },
        { label: { en: 'Create an alert', de: 'Warnung anlegen', zh: '创建提醒' }, roles: ['owner', 'admin'] },
      ],
    },
  ],
  routes: [
    alertsRoute.update({ component: lazyPage('alerts', () => import('./alerts-page.tsx')) }),
    endpointRoute.update({ component: lazyPage('alerts', () => import('./endpoint-page.tsx')) }),
  ],
};
