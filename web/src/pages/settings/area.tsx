import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { oneOf, searchOf } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { SettingsIcon } from '../../components/icons.tsx';

export const settingsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/settings',
  validateSearch: searchOf({ view: oneOf(['security', 'account', 'data']) }),
  component: lazyPage('settings', () => import('./settings-page.tsx')),
});

export const area: Area = {
  name: 'settings',
  navigation: [
    {
      to: '/settings',
      label: { en: 'Settings', de: 'Einstellungen', zh: '设置' },
      icon: SettingsIcon,
      group: 'account',
      order: 40,
    },
  ],
  routes: [settingsRoute],
};
