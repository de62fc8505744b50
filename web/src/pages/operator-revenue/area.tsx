import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { ChartIcon } from '../../components/icons.tsx';
import { revenueRoute } from './routes.ts';

export const area: Area = {
  name: 'operator-revenue',
  navigation: [
    {
      to: '/operator/revenue',
      label: { en: 'Revenue', de: 'Umsatz', zh: '收入' },
      icon: ChartIcon,
      group: 'operator',
      order: 15,
    },
  ],
  routes: [revenueRoute.update({ component: lazyPage('operator-revenue', () => import('./revenue-page.tsx')) })],
};
