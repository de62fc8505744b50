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
      actions: [
        {
          label: { en: 'Create an account', de: 'Konto anlegen', zh: '创建账户' },
          to: '/operator/accounts?open=create',
        },
        { label: { en: 'Grant credit', de: 'Guthaben gewähren', zh: '授予额度' } },
        { label: { en: 'Refund a request', de: 'Anfrage erstatten', zh: '退还请求费用' } },
        {
          label: { en: 'Reset a second factor', de: 'Zweiten Faktor zurücksetzen', zh: '重置第二验证因素' },
          to: '/operator/accounts?open=release',
        },
      ],
    },
  ],
  routes: [
    accountsRoute.update({ component: lazyPage('operator-accounts', () => import('./account-list.tsx')) }),
    accountRoute.update({ component: lazyPage('operator-accounts', () => import('./account-page.tsx')) }),
  ],
};
