import { mayManage } from '../../api/session.ts';
import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { LogIcon } from '../../components/icons.tsx';
import { auditRoute } from './routes.ts';

export const area: Area = {
  name: 'audit',
  navigation: [
    {
      to: '/audit',
      label: { en: 'Audit log', de: 'Protokoll', zh: '审计日志' },
      icon: LogIcon,
      group: 'account',
      order: 30,
      roles: mayManage,
    },
  ],
  routes: [auditRoute.update({ component: lazyPage('audit', () => import('./audit-page.tsx')) })],
};
