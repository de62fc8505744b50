import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { ServerIcon } from '../../components/icons.tsx';
import { systemRoute } from './routes.ts';

export const area: Area = {
  name: 'operator-system',
  navigation: [
    {
      to: '/operator/system',
      label: { en: 'System', de: 'System', zh: '系统' },
      icon: ServerIcon,
      group: 'operator',
      order: 30,
    },
  ],
  routes: [systemRoute.update({ component: lazyPage('operator-system', () => import('./system-page.tsx')) })],
};
