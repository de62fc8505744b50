import { OperationError } from '../accounts/operation.ts';
import { askForStatus } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';

const timeoutMs = 30_000;

/** Makes a payment at the built-in provider through its page, as a user would. */
export async function simulatePayment(
  context: Context,
  { outcome }: { readonly outcome: string },
  topupId: string | undefined,
): Promise<number> {
  const { config, print } = context;
  const topup = await reading(context, ({ repositories }) => repositories.getTopup({ id: topupId ?? '' }));
  if (topup === undefined)
    throw new OperationError(`There is no top-up ${topupId}. List them with: tokenhouse credits topups`);
  if (topup.provider !== 'demo' || topup.checkoutId === null)
    throw new OperationError('Only payments at the built-in provider can be played (payments.provider: demo).');
  const status = await askForStatus(controlSocketPath(config.storage.directory));
  if (status === undefined || status === 'other' || status.accountUrl === undefined)
    throw new OperationError('No service is running on this data folder. Start it with: tokenhouse serve');
  const answer = await fetch(`${status.accountUrl}/v1/payments/demo/${topup.checkoutId}`, {
    method: 'POST',
    redirect: 'manual',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ outcome }).toString(),
    signal: AbortSignal.timeout(timeoutMs),
  });
  if (answer.status !== 303) {
    const { error } = (await answer.json()) as { readonly error?: { readonly message?: string } };
    throw new OperationError(error?.message ?? `The service answered ${answer.status}.`);
  }
  const after = await reading(context, ({ repositories }) => repositories.getTopup({ id: topup.id }));
  print.result({ id: topup.id, outcome, status: after?.status ?? null }, [
    `Played '${outcome}'. ${topup.id} is ${after?.status ?? 'gone'}.`,
  ]);
  return 0;
}
