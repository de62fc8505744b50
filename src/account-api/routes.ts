import type { AccountRoute } from './route.ts';
import { ownAccountRoutes } from './routes/account.ts';
import { adminRoutes } from './routes/admin.ts';
import { keyRoutes } from './routes/keys.ts';
import { mailRoutes } from './routes/mail.ts';

/** Every route of the account API: what is not here does not exist. The document and the tests of access are made from it. */
export const accountRoutes: readonly AccountRoute[] = [
  ...ownAccountRoutes,
  ...keyRoutes,
  ...adminRoutes,
  ...mailRoutes,
];
