import type { AccountRoute } from './route.ts';
import { accountViewRoutes } from './routes/account-views.ts';
import { adminRoutes } from './routes/admin.ts';
import { alertRoutes } from './routes/alerts.ts';
import { batchRoutes } from './routes/batches.ts';
import { configurationRoutes } from './routes/configuration.ts';
import { demoPaymentRoutes } from './routes/demo-payments.ts';
import { errorRoutes } from './routes/errors.ts';
import { exportRoutes } from './routes/export.ts';
import { headRoutes } from './routes/heads.ts';
import { historyRoutes } from './routes/history.ts';
import { invoiceRoutes } from './routes/invoices.ts';
import { receiptRoutes } from './routes/receipts.ts';
import { revenueRoutes } from './routes/revenue.ts';
import { rolesRoute } from './routes/roles.ts';
import { keyRoutes } from './routes/keys.ts';
import { limitRoutes } from './routes/limits.ts';
import { mailRoutes } from './routes/mail.ts';
import { memberRoutes } from './routes/members.ts';
import { modelAdditionRoutes } from './routes/model-additions.ts';
import { modelRoutes } from './routes/models.ts';
import { oidcRoutes } from './routes/oidc.ts';
import { ownAccountRoutes } from './routes/account.ts';
import { ownerRoutes } from './routes/owner.ts';
import { paymentRoutes } from './routes/payments.ts';
import { userRoutes } from './routes/users.ts';
import { secondFactorRoutes } from './routes/second-factors.ts';
import { serverRoutes } from './routes/server.ts';
import { systemRoutes } from './routes/system.ts';
import { usageRoutes } from './routes/usage.ts';
import { webhookRoutes } from './routes/webhooks.ts';

/** Every route of the account API: what is not here does not exist. The document and the access tests are made from it. */
export const accountRoutes: readonly AccountRoute[] = [
  ...accountViewRoutes,
  ...adminRoutes,
  ...alertRoutes,
  ...batchRoutes,
  ...configurationRoutes,
  ...demoPaymentRoutes,
  ...errorRoutes,
  ...exportRoutes,
  ...headRoutes,
  ...historyRoutes,
  ...invoiceRoutes,
  ...receiptRoutes,
  ...revenueRoutes,
  ...keyRoutes,
  ...limitRoutes,
  ...mailRoutes,
  ...memberRoutes,
  ...modelAdditionRoutes,
  ...modelRoutes,
  ...oidcRoutes,
  ...ownAccountRoutes,
  ...ownerRoutes,
  ...paymentRoutes,
  rolesRoute(() => accountRoutes),
  ...userRoutes,
  ...secondFactorRoutes,
  ...serverRoutes,
  ...systemRoutes,
  ...usageRoutes,
  ...webhookRoutes,
];
