import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { CardIcon } from '../../components/icons.tsx';
import { billingRoute, topupRoute } from './routes.ts';

export const area: Area = {
  name: 'billing',
  navigation: [
    {
      to: '/billing',
      label: { en: 'Billing', de: 'Abrechnung', zh: '账单' },
      icon: CardIcon,
      group: 'money',
      order: 10,
      actions: [
        { label: { en: 'Add credit', de: 'Guthaben aufladen', zh: '充值额度' }, roles: ['owner', 'admin', 'billing'] },
        { label: { en: 'Download an invoice', de: 'Rechnung herunterladen', zh: '下载发票' } },
      ],
    },
  ],
  routes: [billingRoute.update({ component: lazyPage('billing', () => import('./billing-page.tsx')) }), topupRoute],
};
