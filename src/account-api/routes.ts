import type { AccountRoute } from './route.ts';
import { demoPaymentRoutes } from './routes/demo-payments.ts';
import { exportRoutes } from './routes/export.ts';
import { keyRoutes } from './routes/keys.ts';
import { limitRoutes } from './routes/limits.ts';
import { mailRoutes } from './routes/mail.ts';
import { ownerRoutes } from './routes/owner.ts';
import { paymentRoutes } from './routes/payments.ts';
import { peopleRoutes } from './routes/people.ts';
import { usageRoutes } from './routes/usage.ts';

/** Every route of the account API: what is not here does not exist. The document and the tests of access are made from it. */
export const accountRoutes: readonly AccountRoute[] = [
  ...demoPaymentRoutes,
  ...exportRoutes,
  ...keyRoutes,
  ...limitRoutes,
  ...mailRoutes,
  ...ownerRoutes,
  ...paymentRoutes,
  ...peopleRoutes,
  ...usageRoutes,
];
