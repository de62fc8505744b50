import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { searchOf } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { ChatIcon } from '../../components/icons.tsx';
import { playgroundSearch } from './search.ts';

export const playgroundRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/playground',
  validateSearch: searchOf(playgroundSearch),
  component: lazyPage('playground', () => import('./playground-page.tsx')),
});

export const area: Area = {
  name: 'playground',
  navigation: [
    {
      to: '/playground',
      label: { en: 'Playground', de: 'Playground', zh: '试验场' },
      icon: ChatIcon,
      group: 'use',
      order: 30,
    },
  ],
  routes: [playgroundRoute],
};
