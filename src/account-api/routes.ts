import type { AccountRoute } from './route.ts';
import { demoPaymentRoutes } from './routes/demo-payments.ts';
import { ownAccountRoutes } from './routes/account.ts';
import { adminRoutes } from './routes/admin.ts';
import { keyRoutes } from './routes/keys.ts';
import { mailRoutes } from './routes/mail.ts';
import { ownerRoutes } from './routes/owner.ts';
import { paymentRoutes } from './routes/payments.ts';
import { peopleRoutes } from './routes/people.ts';

/** Every route of the account API: what is not here does not exist. The document and the tests of access are made from it. */
export const accountRoutes: readonly AccountRoute[] = [
  ...ownAccountRoutes,
  ...adminRoutes,
  ...demoPaymentRoutes,
  ...keyRoutes,
  ...mailRoutes,
  ...ownerRoutes,
  ...paymentRoutes,
  ...peopleRoutes,
];
