import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { KeyIcon } from '../../components/icons.tsx';
import { keyRoute, keysRoute } from './routes.ts';

export const area: Area = {
  name: 'keys',
  navigation: [
    {
      to: '/keys',
      label: { en: 'Keys', de: 'Schlüssel', zh: '密钥' },
      icon: KeyIcon,
      group: 'use',
      order: 40,
      actions: [
        {
          label: { en: 'Create a key', de: 'Schlüssel anlegen', zh: '创建密钥' },
          roles: ['owner', 'admin', 'developer'],
        },
      ],
    },
  ],
  routes: [
    keysRoute.update({ component: lazyPage('keys', () => import('./key-list.tsx')) }),
    keyRoute.update({ component: lazyPage('keys', () => import('./key-page.tsx')) }),
  ],
};
