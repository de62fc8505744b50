import type { AccountRoute } from './route.ts';
import { demoPaymentRoutes } from './routes/demo-payments.ts';
import { keyRoutes } from './routes/keys.ts';
import { mailRoutes } from './routes/mail.ts';
import { memberRoutes } from './routes/members.ts';
import { ownerRoutes } from './routes/owner.ts';
import { paymentRoutes } from './routes/payments.ts';
import { peopleRoutes } from './routes/people.ts';
import { secondFactorRoutes } from './routes/second-factors.ts';

/** Every route of the account API: what is not here does not exist. The document and the tests of access are made from it. */
export const accountRoutes: readonly AccountRoute[] = [
  ...demoPaymentRoutes,
  ...keyRoutes,
  ...mailRoutes,
  ...memberRoutes,
  ...ownerRoutes,
  ...paymentRoutes,
  ...peopleRoutes,
  ...secondFactorRoutes,
];
