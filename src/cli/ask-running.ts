import { OperationError } from '../accounts/operation.ts';
import { askService } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import type { NotificationKind, ServiceRequest } from '../app/control/service-requests.ts';
import type { Context } from './context.ts';

/** Makes the service of this folder notify customers; only the service has the means. */
async function askRunning<Kind extends NotificationKind>(
  { config, print }: Context,
  input: ServiceRequest<Kind>,
): Promise<number> {
  const reported = await askService(controlSocketPath(config.storage.directory), input);
  if (reported === undefined) throw new OperationError('No service is running here. Start it: npm start');
  print.result(reported, [reported.done]);
  return 0;
}

/** Closes past months, which the service does by itself every ten minutes. */
export const issueInvoices = (context: Context): Promise<number> => askRunning(context, { kind: 'issue_invoices' });

export const testWebhook = (context: Context, _options: unknown, endpointId: string): Promise<number> =>
  askRunning(context, { kind: 'test_webhook', endpointId });

export const replayWebhook = (context: Context, _options: unknown, deliveryId: string): Promise<number> =>
  askRunning(context, { kind: 'replay_webhook', deliveryId });
