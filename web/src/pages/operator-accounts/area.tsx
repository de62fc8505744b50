import { createRoute } from '@tanstack/react-router';

import type { Area } from '../../app/area.ts';
import { flag, oneOf, searchOf, text } from '../../app/filters.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { shellRoute } from '../../app/roots.tsx';
import { BuildingIcon } from '../../components/icons.tsx';

export const accountsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/accounts',
  /** `open`: one of the dialogs of the page. */
  validateSearch: searchOf({
    search: text,
    status: oneOf(['active', 'suspended']),
    deleted: flag,
    open: oneOf(['create', 'release']),
  }),
  component: lazyPage('operator-accounts', () => import('./account-list.tsx')),
});

export const accountRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operator/accounts/$id',
  validateSearch: searchOf({ view: oneOf(['people', 'suspensions']) }),
  component: lazyPage('operator-accounts', () => import('./account-page.tsx')),
});

export const area: Area = {
  name: 'operator-accounts',
  navigation: [
    {
      to: '/operator/accounts',
      label: { en: 'Accounts', de: 'Konten', zh: '账户' },
      icon: BuildingIcon,
      group: 'operator',
      order: 10,
    },
  ],
  routes: [accountsRoute, accountRoute],
};
