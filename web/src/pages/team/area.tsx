import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { flag, searchOf } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { PeopleIcon } from '../../components/icons.tsx';

export const teamRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/team',
  /** `invite`: the dialog for an invitation is open. */
  validateSearch: searchOf({ invite: flag }),
  component: lazyPage('team', () => import('./team-page.tsx')),
});

export const area: Area = {
  name: 'team',
  navigation: [
    {
      to: '/team',
      label: { en: 'Team', de: 'Team', zh: '团队' },
      icon: PeopleIcon,
      group: 'account',
      order: 10,
    },
  ],
  routes: [teamRoute],
};
