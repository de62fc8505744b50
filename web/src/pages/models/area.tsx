import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { searchOf, text } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { ModelIcon } from '../../components/icons.tsx';

export const modelsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/models',
  validateSearch: searchOf({ q: text }),
  component: lazyPage('models', () => import('./model-list.tsx')),
});

export const modelRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/models/$id',
  component: lazyPage('models', () => import('./model-page.tsx')),
});

export const area: Area = {
  name: 'models',
  navigation: [
    { to: '/models', label: { en: 'Models', de: 'Modelle', zh: '模型' }, icon: ModelIcon, group: 'use', order: 35 },
  ],
  routes: [modelsRoute, modelRoute],
};
