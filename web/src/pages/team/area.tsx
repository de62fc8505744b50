import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { PeopleIcon } from '../../components/icons.tsx';
import { teamRoute } from './routes.ts';

export const area: Area = {
  name: 'team',
  navigation: [
    {
      to: '/team',
      label: { en: 'Team', de: 'Team', zh: '团队' },
      icon: PeopleIcon,
      group: 'account',
      order: 10,
      actions: [{ label: { en: 'Invite a person', de: 'Person einladen', zh: '邀请成员' }, roles: ['owner', 'admin'] }],
    },
  ],
  routes: [teamRoute.update({ component: lazyPage('team', () => import('./team-page.tsx')) })],
};
