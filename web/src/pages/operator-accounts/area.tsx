import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { BuildingIcon } from '../../components/icons.tsx';
import { accountRoute, accountsRoute } from './routes.ts';

export const area: Area = {
  name: 'operator-accounts',
  navigation: [
    {
      to: '/operator/accounts',
      label: { en: 'Accounts', de: 'Konten', zh: '账户' },
      icon: BuildingIcon,
      group: 'operator',
      order: 10,
    },
  ],
  routes: [
    accountsRoute.update({ component: lazyPage('operator-accounts', () => import('./account-list.tsx')) }),
    accountRoute.update({ component: lazyPage('operator-accounts', () => import('./account-page.tsx')) }),
  ],
};
