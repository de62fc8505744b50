import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { oneOf, searchOf, text } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { LogIcon, MailIcon } from '../../components/icons.tsx';

export const outboxRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/outbox',
  /** `mail`: the one that is read. */
  validateSearch: searchOf({ state: oneOf(['waiting', 'sent', 'failed']), mail: text }),
  component: lazyPage('operator-log', () => import('./outbox-page.tsx')),
});

export const auditRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/audit',
  /** `entry`: the change whose details are open. */
  validateSearch: searchOf({ account: text, action: text, target: text, entry: text }),
  component: lazyPage('operator-log', () => import('./audit-page.tsx')),
});

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
  routes: [outboxRoute, auditRoute],
};
