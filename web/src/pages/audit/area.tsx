import { createRoute } from '@tanstack/react-router';

import { mayManage } from '../../api/session.ts';
import type { Area } from '../../app/area.ts';
import { oneOf, searchOf, text } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { LogIcon } from '../../components/icons.tsx';

export const auditRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/audit',
  /** `entry`: the change whose details are open. */
  validateSearch: searchOf({
    actor: text,
    action: text,
    target: text,
    since: oneOf(['today', '7d', '30d', '90d']),
    entry: text,
  }),
  component: lazyPage('audit', () => import('./audit-page.tsx')),
});

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
  routes: [auditRoute],
};
