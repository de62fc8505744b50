import { createRoute } from '@tanstack/react-router';

import { shellRoute } from '../../app/roots.tsx';

export const batchesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/batches',
});
