import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { ChartIcon, ListIcon } from '../../components/icons.tsx';
import { requestRoute, requestsRoute, usageRoute } from './routes.ts';

export const area: Area = {
  name: 'usage',
  navigation: [
    {
      to: '/requests',
      label: { en: 'Requests', de: 'Anfragen', zh: '请求' },
      icon: ListIcon,
      group: 'use',
      order: 50,
    },
    {
      to: '/usage',
      label: { en: 'Usage', de: 'Nutzung', zh: '用量' },
      icon: ChartIcon,
      group: 'use',
      order: 60,
    },
  ],
  routes: [
    requestsRoute.update({ component: lazyPage('usage', () => import('./requests-page.tsx')) }),
    requestRoute.update({ component: lazyPage('usage', () => import('./request-page.tsx')) }),
    usageRoute.update({ component: lazyPage('usage', () => import('./usage-page.tsx')) }),
  ],
};
