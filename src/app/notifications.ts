import { OperationError } from '../accounts/operation.ts';
import type { OperationServices } from '../accounts/operation.ts';
import { Alerts } from '../billing/alerts/alerts.ts';
import type { Config } from '../config/config.ts';
import type { NotificationKind, ServiceHandlers } from './control/service-requests.ts';
import { createNameResolver } from '../platform/outbound/resolver.ts';
import type { NameResolver } from '../platform/outbound/resolver.ts';
import { Invoices } from '../billing/invoices/invoices.ts';
import type { InvoiceSettings } from '../billing/invoices/invoices.ts';
import { Receipts } from '../billing/invoices/receipts.ts';
import type { PaymentFacts } from '../billing/invoices/receipts.ts';
import type { Customer } from '../billing/invoices/statement.ts';
import { microcentsPerCent } from '../billing/payments/payments.ts';
import type { Payments } from '../billing/payments/payments.ts';
import { PaymentError } from '../billing/payments/provider.ts';
import type { UnreceiptedPayment } from '../store/repositories/receipts.ts';
import { paperPdf, systemFont } from '../billing/invoices/pdf.ts';
import type { Paper } from '../billing/invoices/paper.ts';
import type { Jobs } from '../platform/jobs/jobs.ts';
import type { Log } from '../platform/log.ts';
import type { Mailer } from '../notifications/mail/mailer.ts';
import { invitationMail } from '../accounts/users/mails.ts';
import { Notices } from '../billing/notices/notices.ts';
import { Deliveries } from '../notifications/webhooks/deliveries.ts';
import { WebhookEvents } from '../notifications/webhooks/events.ts';
import { endpointSecret } from '../notifications/webhooks/signature.ts';
import { webhookTarget } from '../notifications/webhooks/target.ts';
import type { WebhookRules } from '../notifications/webhooks/target.ts';

export interface NotificationsOptions {
  readonly operations: OperationServices;
  readonly config: () => Config;
  readonly accountUrl: () => string;
  readonly mailer: Mailer;
  readonly log: Log;
  readonly jobs: Jobs;
  /** The current payment provider, if there is one. */
  readonly payments?: () => Payments | undefined;
  /** For deliveries; defaults to 443 and the authorities that Node trusts. */
  readonly dial?: { readonly httpsPort: number; readonly certificates: string | undefined };
  readonly resolver?: NameResolver;
}

/** Automatic notifications of customers: invoices, alerts, and webhooks for events. */
export interface Notifications {
  readonly invoices: Invoices;
  /** Called when a payment was credited or returned: its receipt or credit note is due. */
  readonly paymentMoved: () => void;
  readonly events: WebhookEvents;
  /** Prints it as a PDF. */
  readonly print: (paper: Paper) => Promise<Uint8Array>;
  /** Secret of an endpoint, by its number of rotations. */
  readonly webhookSecret: (endpointId: string, version: number) => string;
  /** Throws `unsupported_value` for an address that may not be used. */
  readonly checkWebhookUrl: (url: string) => void;
  /** The command line's requests. */
  readonly handlers: ServiceHandlers<NotificationKind>;
}

const minuteMs = 60_000;

/** Wires the parts together and registers their work as jobs. */
export function openNotifications(options: NotificationsOptions): Notifications {
  const { operations, config, accountUrl, mailer, log, jobs } = options;
  const { repositories, newId, now, secret } = operations;
  const timeZoneOf = async (accountId: string): Promise<string> =>
    (await repositories.getAccount({ accountId }))?.timeZone ?? 'UTC';
  const rules = (): WebhookRules => rulesOf(config(), accountUrl());
  const webhookSecret = (endpointId: string, version: number): string =>
    endpointSecret(secret.webhooks, endpointId, version);
  const print = (paper: Paper): Promise<Uint8Array> =>
    paperPdf(paper, { font: config().invoices.font ?? systemFont() });
  const settings = (): InvoiceSettings => {
    const { seller, tax, prefix } = config().invoices;
    return {
      seller: seller === undefined ? null : { ...seller, taxId: seller.taxId ?? null, email: seller.email ?? null },
      tax,
      prefix,
    };
  };
  const buyerOf = async ({ id, name }: { readonly id: string; readonly name: string }): Promise<Customer> => {
    const billing = (await repositories.getAccount({ accountId: id }))?.billing;
    const country = billing?.country ?? null;
    return {
      name: billing?.legalName ?? name,
      address: [...(billing?.addressLines ?? []), ...(country === null ? [] : [country])],
      country,
      taxId: billing?.taxId ?? null,
      taxStatus: billing?.taxStatus ?? 'standard',
      email: billing?.invoiceEmail ?? null,
    };
  };
  const invoices = new Invoices({
    repositories,
    settings,
    timeZoneOf,
    buyerOf,
    newId,
    now,
  });
  const receipts = new Receipts({
    repositories,
    settings,
    timeZoneOf,
    buyerOf,
    factsOf: (topup, amountMicrocents) => factsOf(options.payments?.(), topup, amountMicrocents, log),
    issued: () => void jobs.run('notices'),
    newId,
    now,
  });
  const events = new WebhookEvents({ repositories, newId, now, woken: () => void jobs.run('webhooks') });
  const resolver = options.resolver;
  const deliveries = new Deliveries({
    repositories,
    rules,
    resolver: () => resolver ?? createNameResolver(config().images.dnsServers),
    dial: options.dial ?? { httpsPort: 443, certificates: undefined },
    secretOf: webhookSecret,
    disableAfterMs: () => config().webhooks.disableAfterMs,
    now,
    log,
  });
  const alerts = new Alerts({ repositories, timeZoneOf, newId, now });
  const notices = new Notices({ repositories, mailer, events, print, accountUrl, now, log });
  jobs.add({ name: 'invoices', everyMs: 10 * minuteMs, runs: 'alone', run: () => invoices.issueDue() });
  jobs.add({ name: 'receipts', everyMs: 15_000, runs: 'anywhere', run: (signal) => receipts.issueDue(signal) });
  jobs.add({ name: 'alerts', everyMs: minuteMs, runs: 'alone', run: () => alerts.look() });
  jobs.add({ name: 'notices', everyMs: 15_000, runs: 'alone', run: () => notices.notify() });
  jobs.add({ name: 'webhooks', everyMs: 5_000, runs: 'anywhere', run: (signal) => deliveries.deliverDue(signal) });
  jobs.add({ name: 'webhooks_tidy', everyMs: 60 * minuteMs, runs: 'alone', run: () => deliveries.forgetOld() });
  return {
    invoices,
    paymentMoved: () => {
      receipts.want();
      void jobs.run('receipts');
    },
    events,
    print,
    webhookSecret,
    checkWebhookUrl: (url) => void webhookTarget(url, rules(), 'url'),
    handlers: handlersOf(options, events),
  };
}

function handlersOf(
  { operations, accountUrl, mailer, jobs }: NotificationsOptions,
  events: WebhookEvents,
): ServiceHandlers<NotificationKind> {
  const { repositories, now } = operations;
  return {
    issue_invoices: async () => {
      if (!(await jobs.run('invoices'))) throw new OperationError('It failed; see the log of the service.');
      return { done: 'All past months are closed.', id: null };
    },
    invite: async ({ accountId, email, token }) => {
      const { name = accountId } = (await repositories.getAccount({ accountId })) ?? {};
      const mail = invitationMail(accountUrl(), token, { account: name, role: 'owner', days: 7 });
      await mailer.send({ to: email, kind: 'invitation', accountId, ...mail });
      return { done: `An invitation is on its way to ${email}.`, id: null };
    },
    test_webhook: async ({ endpointId }) => {
      const endpoint = await repositories.getWebhookEndpoint({ id: endpointId });
      if (endpoint?.status !== 'active')
        throw new OperationError(`There is no active endpoint ${endpointId}. List them with: tokenhouse webhooks list`);
      const { waiting, eventId } = await events.ping(endpoint.accountId, endpoint.id);
      if (waiting === 0) throw new OperationError('Too many deliveries of the account are waiting.');
      return { done: `A ping is on its way to ${endpoint.url}.`, id: eventId };
    },
    replay_webhook: async ({ deliveryId }) => {
      const delivery = await repositories.replayDelivery({ id: deliveryId, at: now() });
      if (delivery === undefined) throw new OperationError(`There is no delivery ${deliveryId} to an active endpoint.`);
      void jobs.run('webhooks');
      return { done: `${delivery.type} is being sent again.`, id: delivery.id };
    },
  };
}

/** The provider's details of a payment, for its receipt. */
async function factsOf(
  payments: Payments | undefined,
  { id, provider, paymentId, checkoutId }: NonNullable<UnreceiptedPayment['topup']>,
  amountMicrocents: bigint,
  log: Log,
): Promise<PaymentFacts | undefined | 'later'> {
  if (payments?.provider.name !== provider) return undefined;
  const question = {
    paymentId,
    topupId: id,
    checkoutId,
    amountCents: Number(amountMicrocents / microcentsPerCent),
    currency: payments.currency,
  };
  try {
    return await payments.provider.paymentDetails(question);
  } catch (error) {
    if (!(error instanceof PaymentError)) throw error;
    const isLater = error.code === 'unavailable';
    log.service({
      level: isLater ? 'warn' : 'error',
      event: isLater ? 'receipt_waits' : 'receipt_without_details',
      detail: { topup: id },
    });
    return isLater ? 'later' : undefined;
  }
}

function rulesOf({ server, webhooks }: Config, accountUrl: string): WebhookRules {
  const own = [server.inference.publicUrl, accountUrl].flatMap((url) =>
    url === undefined ? [] : [new URL(url).hostname],
  );
  return { allowedHosts: new Set(webhooks.allowedHosts), ownHosts: new Set(own) };
}
