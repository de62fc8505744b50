import type { AccountServices } from '../../../src/account-api/services.ts';
import type { Config } from '../../../src/config/config.ts';
import { DemoProvider } from '../../../src/billing/payments/demo.ts';
import { Payments } from '../../../src/billing/payments/payments.ts';

/** The account host takes payments through the built-in provider, whose messages arrive at once. */
export function withDemoPayments(services: AccountServices): Partial<AccountServices> {
  const { ledger, repositories, now, newId, secret } = services.operations;
  const { accountUrl, config } = services;
  const deliver = async (bytes: Uint8Array, signature: string): Promise<void> =>
    void (await payments.receive(bytes, signature));
  const demo = new DemoProvider({ repositories, now, newId, secret: secret.demoPayments, accountUrl, deliver });
  const payments: Payments = new Payments({
    ledger,
    repositories,
    now,
    newId,
    currency: 'usd',
    log: () => {},
    provider: demo,
  });
  const taken = { provider: 'demo', currency: 'usd', topupCentsMin: 100, topupCentsMax: 100_000, stripe: undefined };
  return { payments, demo, config: () => ({ ...config(), payments: taken }) as unknown as Config };
}
