import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { ListIcon } from '../../components/icons.tsx';
import { batchesRoute } from './routes.ts';

export const area: Area = {
  name: 'batches',
  navigation: [
    {
      to: '/batches',
      label: { en: 'Batches', de: 'Stapel', zh: '批处理' },
      icon: ListIcon,
      group: 'use',
      order: 65,
    },
  ],
  routes: [batchesRoute.update({ component: lazyPage('batches', () => import('./batches-page.tsx')) })],
};
