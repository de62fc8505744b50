import type { Config } from '../../config/config.ts';
import type { Job } from '../../platform/jobs/jobs.ts';
import type { Log } from '../../platform/log.ts';
import type { Mailer } from '../../notifications/mail/mailer.ts';
import type { OperationServices } from '../../accounts/operation.ts';
import { AutoTopups } from './auto-topup.ts';
import { DemoProvider } from './demo.ts';
import { Payments } from './payments.ts';
import type { PaymentLog } from './payment-services.ts';
import { closePromotions } from './promotions.ts';
import type { PaymentProvider } from './provider.ts';
import { apiVersion, StripeProvider } from './stripe.ts';

export interface PayingServices {
  readonly operations: OperationServices;
  /** The payment settings at startup stay in force until the process ends. */
  readonly config: () => Pick<Config, 'payments'>;
  readonly accountUrl: () => string;
  readonly mailer: Mailer;
  readonly log: Log;
  /** Called when a payment was just credited or returned. */
  readonly moved: () => void;
}

export interface Paying {
  /** undefined: payments are off. */
  readonly payments: Payments | undefined;
  /** Set if the built-in provider is used. */
  readonly demo: DemoProvider | undefined;
  readonly jobs: readonly Job[];
  /** Starts a poll for missed events immediately. Resolves when it is under way, not when it is done. */
  begin(): void;
  close(): Promise<void>;
}

const catchUpEveryMs = 3_600_000;
const autoTopupEveryMs = 10_000;
/** Interval for collecting from accounts that owe; no request can hold credit that becomes free meanwhile. */
const collectEveryMs = 2_000;
const promotionsEveryMs = 60_000;

/** Opens the payment provider, with its background work. */
export function openPayments(services: PayingServices): Paying {
  const { operations, accountUrl, mailer, log: output, moved } = services;
  const config = services.config().payments;
  const { ledger, repositories, now, newId, secret } = operations;
  const log: PaymentLog = (level, event, detail) => output.service({ level, event, detail });
  const promotions: Job = {
    name: 'promotions_close',
    everyMs: promotionsEveryMs,
    runs: 'alone',
    run: () => closePromotions({ ledger, repositories, now, newId }),
  };
  let demo: DemoProvider | undefined;
  let provider: PaymentProvider | undefined;
  if (config.provider === 'stripe' && config.stripe !== undefined) {
    const { secretKey, webhookSecret, apiUrl, automaticTax } = config.stripe;
    provider = new StripeProvider({
      secretKey: secretKey.reveal(),
      webhookSecret: webhookSecret.reveal(),
      apiUrl,
      automaticTax,
      otherVersion: (found) => log('warn', 'payment_events_version', { found, expected: apiVersion }),
    });
  } else if (config.provider === 'demo') {
    const deliver = async (bytes: Uint8Array, signature: string): Promise<void> => {
      await payments?.receive(bytes, signature);
    };
    provider = demo = new DemoProvider({ repositories, now, newId, secret: secret.demoPayments, accountUrl, deliver });
  }
  if (provider === undefined)
    return {
      payments: undefined,
      demo: undefined,
      jobs: [promotions],
      begin: () => {},
      close: () => Promise.resolve(),
    };
  const payments: Payments = new Payments({
    ledger,
    repositories,
    now,
    newId,
    provider,
    currency: config.currency,
    log,
    moved,
  });
  const autoTopups = new AutoTopups({ repositories, payments, mailer, now, newId, accountUrl, log });
  const ended = new AbortController();
  let first: Promise<void> | undefined;
  return {
    payments,
    demo,
    jobs: [
      promotions,
      {
        name: 'payments_catch_up',
        everyMs: catchUpEveryMs,
        runs: 'anywhere',
        run: async (signal) => void (await payments.catchUp(signal)),
      },
      {
        name: 'returns_collect',
        everyMs: collectEveryMs,
        runs: 'anywhere',
        run: (signal) => payments.collectOwed(signal),
      },
      { name: 'auto_topup', everyMs: autoTopupEveryMs, runs: 'anywhere', run: (signal) => autoTopups.run(signal) },
    ],
    begin: () => {
      first ??= payments.catchUp(ended.signal).then(
        () => {},
        (error: unknown) =>
          log('warn', 'payments_catch_up_failed', { reason: error instanceof Error ? error.name : 'unknown' }),
      );
    },
    close: async () => {
      ended.abort();
      await provider.close();
    },
  };
}
