import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { TagIcon } from '../../components/icons.tsx';
import { catalogueRoute } from './routes.ts';

export const area: Area = {
  name: 'operator-catalogue',
  navigation: [
    {
      to: '/operator/catalogue',
      label: { en: 'Catalogue', de: 'Katalog', zh: '模型目录' },
      icon: TagIcon,
      group: 'operator',
      order: 20,
      actions: [
        { label: { en: 'Set a price', de: 'Preis setzen', zh: '设置价格' } },
        { label: { en: 'Add a server', de: 'Server hinzufügen', zh: '添加服务器' } },
      ],
    },
  ],
  routes: [catalogueRoute.update({ component: lazyPage('operator-catalogue', () => import('./catalogue-page.tsx')) })],
};
