import { deliveryObject, endpointObject } from '../account-api/webhook-objects.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';
import { askRunning } from './ask-running.ts';

/** Destinations of deliveries, and the outcomes of the newest, in the form of GET /v1/webhook_endpoints. */
export async function listWebhooks(
  context: Context,
  { account, limit }: { readonly account?: string; readonly limit: number },
): Promise<number> {
  const endpoints = await reading(context, async (repositories) => {
    const found = await repositories.listWebhookEndpoints({
      limit,
      ...(account === undefined ? {} : { accountId: account }),
    });
    return await Promise.all(
      found.map(async (endpoint) => {
        const { id: endpointId, accountId } = endpoint;
        const deliveries = await repositories.listDeliveries({ accountId, endpointId, limit: 5 });
        return { ...endpointObject(endpoint), account_id: accountId, deliveries: deliveries.map(deliveryObject) };
      }),
    );
  });
  context.print.result(
    endpoints,
    endpoints.flatMap((endpoint) => [
      `${endpoint.id}  ${endpoint.account_id}  ${endpoint.status}  ${endpoint.url}`,
      ...table(
        ['  delivery', 'type', 'state', 'tries', 'answer', 'failure'],
        endpoint.deliveries.map(({ id, type, state, tries, response_status: status, failure }) => [
          `  ${id}`,
          type,
          state,
          tries,
          status,
          failure,
        ]),
      ),
    ]),
  );
  return 0;
}

export const testWebhook = (context: Context, _options: unknown, endpointId: string | undefined): Promise<number> =>
  askRunning(context, { kind: 'test_webhook', endpointId: endpointId ?? '' });

export const replayWebhook = (context: Context, _options: unknown, deliveryId: string | undefined): Promise<number> =>
  askRunning(context, { kind: 'replay_webhook', deliveryId: deliveryId ?? '' });
