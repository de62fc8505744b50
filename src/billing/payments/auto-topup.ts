import type { Mailer } from '../../notifications/mail/mailer.ts';
import { startOfUtcMonth } from '../../platform/calendar/months.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { newTopupId } from './payments.ts';
import type { PaymentLog } from './payment-services.ts';
import type { Payments } from './payments.ts';
import { PaymentError } from './provider.ts';
import { microcentsPerCent } from './payments.ts';

export interface AutoTopupServices {
  readonly repositories: Repositories;
  readonly payments: Payments;
  readonly mailer: Mailer;
  readonly now: () => number;
  readonly newId: () => Uint8Array;
  readonly accountUrl: () => string;
  readonly log: PaymentLog;
}

/** Consecutive failed charges before automatic top-up stops. */
export const failuresMax = 3;
/** Delay before the next charge after a failed one. */
export const retryAfterMs = 15 * 60_000;
/** Stripe forgets an idempotency key after a day; after that the same call could charge twice. */
const chargeKeyMs = 23 * 3_600_000;
const batchMax = 100;

/**
 * Charges saved payment methods of accounts that have run low. A charge begins as a row marking it in progress, and its call carries the
 * row's id as idempotency key: so there is one charge per trigger, even with several processes and after a kill. Only the webhook grants
 * credit, as with every payment.
 */
export class AutoTopups {
  readonly #services: AutoTopupServices;

  constructor(services: AutoTopupServices) {
    this.#services = services;
  }

  /** Runs once over all that are due. */
  async run(signal: AbortSignal): Promise<void> {
    const { repositories, now, log } = this.#services;
    let after: string | undefined;
    do {
      const due: readonly string[] = await repositories.dueAutoTopups({
        retryBefore: now() - retryAfterMs,
        limit: batchMax,
        ...(after === undefined ? {} : { after }),
      });
      for (const accountId of due) {
        if (signal.aborted) return;
        try {
          await this.#one(accountId);
        } catch (error) {
          if (!(error instanceof PaymentError)) throw error;
          // The next run retries the same charge; it must not block those after it.
          log('warn', 'auto_topup_waits', { account: accountId });
        }
      }
      after = due.length === batchMax ? due.at(-1) : undefined;
    } while (after !== undefined);
  }

  async #one(accountId: string): Promise<void> {
    const { repositories, payments, now, newId } = this.#services;
    const at = now();
    const claim = await repositories.claimAutoTopup({
      accountId,
      topupId: newTopupId(newId),
      provider: payments.provider.name,
      monthFrom: startOfUtcMonth(at),
      at,
    });
    if (claim.kind === 'none') return;
    if (claim.kind === 'cap') {
      await this.#report(accountId, `cap:${startOfUtcMonth(at)}`, 'Automatic top-up has reached its monthly ceiling', [
        'The balance is below the threshold, but another top-up would exceed the ceiling of this month, so none was made.',
      ]);
      return;
    }
    const { topup } = claim;
    switch (topup.status) {
      case 'pending':
        await this.#charge(topup);
        return;
      case 'failed':
      case 'expired':
        await this.#fail(accountId, topup.id, 'the charge was declined');
        return;
      case 'paid':
      case 'refunded':
      case 'disputed':
        await repositories.endAutoTopup({ accountId, topupId: topup.id });
        return;
    }
  }

  async #charge(topup: {
    id: string;
    accountId: string;
    amountMicrocents: bigint;
    checkoutId: string | null;
    createdAt: number;
  }) {
    const { repositories, payments, now } = this.#services;
    const { id, accountId, amountMicrocents } = topup;
    const isOld = now() - topup.createdAt > chargeKeyMs;
    // The provider has it, and an event reports its outcome.
    if (topup.checkoutId !== null && !isOld) return;
    if (isOld) {
      await this.#fail(accountId, id, 'the outcome of the last charge is unknown; check at the payment provider');
      return;
    }
    const method = await repositories.getPaymentMethod({ accountId, provider: payments.provider.name });
    if (method === undefined) {
      await this.#fail(accountId, id, 'no payment method is saved');
      return;
    }
    try {
      await payments.provider.charge({
        topupId: id,
        accountId,
        amountCents: Number(amountMicrocents / microcentsPerCent),
        currency: payments.currency,
        ...method,
        idempotencyKey: id,
      });
    } catch (error) {
      if (!(error instanceof PaymentError) || error.code !== 'declined') throw error;
      await this.#fail(accountId, id, error.message);
      return;
    }
    await repositories.noteCheckout({ id, checkoutId: `charge:${id}`, checkoutUrl: '' });
    const after = await repositories.getTopup({ id });
    // The built-in provider has already reported; with others the next run finds it.
    if (after?.status === 'paid') await repositories.endAutoTopup({ accountId, topupId: id });
  }

  async #fail(accountId: string, topupId: string, reason: string): Promise<void> {
    const { repositories, now, log } = this.#services;
    const after = await repositories.failAutoTopup({ accountId, topupId, reason, failuresMax, at: now() });
    if (after === undefined) return;
    log(after.stoppedAt === null ? 'warn' : 'error', 'auto_topup_failed', {
      account: accountId,
      topup: topupId,
      failures: String(after.failures),
    });
  }

  async #report(accountId: string, what: string, subject: string, lines: readonly string[]): Promise<void> {
    const { repositories, mailer, accountUrl } = this.#services;
    const text = [`Account ${accountId}`, '', ...lines, '', `${accountUrl()}/topup`].join('\n');
    for (const to of await repositories.payersOf({ accountId }))
      await mailer.send({
        to,
        subject,
        text,
        kind: 'auto_topup',
        accountId,
        idempotencyKey: `auto_topup:${accountId}:${what}:${to}`,
      });
  }
}
