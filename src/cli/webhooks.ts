import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';
import { askRunning } from './ask-running.ts';

/** Destinations of deliveries, and the outcomes of the newest. */
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
      found.map(async (endpoint) => ({
        endpoint,
        deliveries: await repositories.listDeliveries({
          accountId: endpoint.accountId,
          endpointId: endpoint.id,
          limit: 5,
        }),
      })),
    );
  });
  context.print.result(
    endpoints.map(({ endpoint, deliveries }) => ({
      id: endpoint.id,
      account: endpoint.accountId,
      url: endpoint.url,
      events: endpoint.events,
      status: endpoint.status,
      reason: endpoint.reason,
      failing_since: endpoint.failingSince === null ? null : new Date(endpoint.failingSince).toISOString(),
      deliveries: deliveries.map(({ id, type, state, tries, status, failure }) => ({
        id,
        type,
        state,
        tries,
        response_status: status,
        failure,
      })),
    })),
    endpoints.flatMap(({ endpoint, deliveries }) => [
      `${endpoint.id}  ${endpoint.accountId}  ${endpoint.status}  ${endpoint.url}`,
      ...table(
        ['  delivery', 'type', 'state', 'tries', 'answer', 'failure'],
        deliveries.map(({ id, type, state, tries, status, failure }) => [
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
