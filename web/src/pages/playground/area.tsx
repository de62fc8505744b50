import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { ChatIcon } from '../../components/icons.tsx';
import { playgroundRoute } from './routes.ts';

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
  routes: [playgroundRoute.update({ component: lazyPage('playground', () => import('./playground-page.tsx')) })],
};
