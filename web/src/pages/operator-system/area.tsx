import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { ServerIcon } from '../../components/icons.tsx';

const systemRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/system',
  component: lazyPage('operator-system', () => import('./system-page.tsx')),
});

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
  routes: [systemRoute],
};
