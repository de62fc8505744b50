import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { flag, searchOf } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { KeyIcon } from '../../components/icons.tsx';

export const keysRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/keys',
  /** `create`: the dialog for a new key is open. */
  validateSearch: searchOf({ disabled: flag, create: flag }),
  component: lazyPage('keys', () => import('./key-list.tsx')),
});

export const keyRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/keys/$id',
  component: lazyPage('keys', () => import('./key-page.tsx')),
});

export const area: Area = {
  name: 'keys',
  navigation: [
    {
      to: '/keys',
      label: { en: 'Keys', de: 'Schlüssel', zh: '密钥' },
      icon: KeyIcon,
      group: 'use',
      order: 40,
    },
  ],
  routes: [keysRoute, keyRoute],
};
