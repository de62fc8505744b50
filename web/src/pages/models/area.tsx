import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { ModelIcon } from '../../components/icons.tsx';
import { modelRoute, modelsRoute } from './routes.ts';

export const area: Area = {
  name: 'models',
  navigation: [
    { to: '/models', label: { en: 'Models', de: 'Modelle', zh: '模型' }, icon: ModelIcon, group: 'use', order: 35 },
  ],
  routes: [
    modelsRoute.update({ component: lazyPage('models', () => import('./model-list.tsx')) }),
    modelRoute.update({ component: lazyPage('models', () => import('./model-page.tsx')) }),
  ],
};
