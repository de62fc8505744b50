import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { LogIcon, MailIcon } from '../../components/icons.tsx';
import { auditRoute, outboxRoute } from './routes.ts';

export const area: Area = {
  name: 'operator-log',
  navigation: [
    {
      to: '/operator/outbox',
      label: { en: 'Outbox', de: 'Postausgang', zh: '发件箱' },
      icon: MailIcon,
      group: 'operator',
      order: 40,
    },
    {
      to: '/operator/audit',
      label: { en: 'Server audit log', de: 'Serverprotokoll', zh: '服务器审计日志' },
      icon: LogIcon,
      group: 'operator',
      order: 50,
    },
  ],
  routes: [
    outboxRoute.update({ component: lazyPage('operator-log', () => import('./outbox-page.tsx')) }),
    auditRoute.update({ component: lazyPage('operator-log', () => import('./audit-page.tsx')) }),
  ],
};
