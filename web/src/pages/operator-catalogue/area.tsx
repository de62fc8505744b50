import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { searchOf, text } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { TagIcon } from '../../components/icons.tsx';

export const catalogueRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/catalogue',
  /** `model`: the one that is shown; `account`: whose prices. */
  validateSearch: searchOf({ model: text, account: text }),
  component: lazyPage('operator-catalogue', () => import('./catalogue-page.tsx')),
});

export const area: Area = {
  name: 'operator-catalogue',
  navigation: [
    {
      to: '/operator/catalogue',
      label: { en: 'Catalogue', de: 'Katalog', zh: '模型目录' },
      icon: TagIcon,
      group: 'operator',
      order: 20,
    },
  ],
  routes: [catalogueRoute],
};
