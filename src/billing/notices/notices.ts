import { centsText, dollars } from '../../platform/dollars.ts';
import type { Log } from '../../platform/log.ts';
import type { Mail, Mailer } from '../../notifications/mail/mailer.ts';
import type { DayNotice, Notice } from '../../store/repositories/notices.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { nameOf, paperOf, readData } from '../invoices/invoice-document.ts';
import { readReceipt, receiptNames, receiptPaper } from '../invoices/receipt.ts';
import { fileNameOf } from '../invoices/paper.ts';
import type { Paper } from '../invoices/paper.ts';
import type { Events, EventType } from '../../notifications/webhooks/events.ts';

export interface NoticeServices {
  readonly repositories: Repositories;
  readonly mailer: Mailer;
  readonly events: Events;
  readonly print: (paper: Paper) => Promise<Uint8Array>;
  readonly accountUrl: () => string;
  readonly now: () => number;
  readonly log: Log;
}

const noticesAtOnce = 50;
/** Accounts that are notified of a signed day before other notices get their turn. */
const accountsAtOnce = 50;
/** An event that could not be announced for this long is abandoned. */
const triedForMs = 7 * 86_400_000;

/**
 * Announces events by mail and to webhooks: exactly those recorded in the transactions that caused them. If a process dies midway the event
 * is announced again; the outbox and webhooks recognize duplicates by its id.
 */
export class Notices {
  readonly #services: NoticeServices;
  #after = '';
  /** A notice to all accounts that was looked at since the list began has not come to its end. */
  #isUnfinished = false;

  constructor(services: NoticeServices) {
    this.#services = services;
  }

  /** Processes one batch; true: there are more. */
  async notify(): Promise<boolean> {
    const { repositories, now, log } = this.#services;
    const notices = await repositories.listNotices({ after: this.#after, limit: noticesAtOnce });
    for (const notice of notices) {
      try {
        if (!(await this.#notify(notice))) {
          this.#isUnfinished = true;
          continue;
        }
      } catch {
        // Other notices must not wait for it.
        if (now() - notice.at < triedForMs) continue;
        log.service({ level: 'error', event: 'notice_given_up', detail: { type: notice.type, id: notice.id } });
      }
      await repositories.forgetNotice({ id: notice.id });
    }
    const isMore = notices.length === noticesAtOnce;
    this.#after = isMore ? notices.at(-1)!.id : '';
    if (isMore) return true;
    const isUnfinished = this.#isUnfinished;
    this.#isUnfinished = false;
    return isUnfinished;
  }

  /** False: there are more accounts to tell. */
  async #notify(notice: Notice): Promise<boolean> {
    const { mailer, events } = this.#services;
    if (notice.type === 'day_head.signed') return await this.#tellOfDay(notice);
    const data = JSON.parse(notice.data) as Readonly<Record<string, unknown>>;
    if (notice.isWebhook) await events.emit(notice.accountId, notice.type as EventType, data, notice.id);
    for (const mail of await this.#mails(notice, data))
      await mailer.send({ ...mail, accountId: notice.accountId, idempotencyKey: `${notice.id}:${mail.to}` });
    return true;
  }

  /**
   * Tells the next accounts of a signed day. A process that dies midway, or another one beside it, tells some of them again, with the same
   * ids: an endpoint gets each once.
   */
  async #tellOfDay({ id, data }: Notice): Promise<boolean> {
    const { repositories, events } = this.#services;
    const { date, after } = JSON.parse(data) as DayNotice;
    const head = await repositories.getDayHead({ day: Date.parse(date) });
    if (head === undefined) throw new Error(`there is no head of ${date}`);
    const accounts = await repositories.accountsWithEndpoints({ after, limit: accountsAtOnce });
    for (const accountId of accounts) await events.emit(accountId, 'day_head.signed', head, `${id}_${accountId}`);
    if (accounts.length < accountsAtOnce) return true;
    const next: DayNotice = { date, after: accounts.at(-1)! };
    await repositories.advanceNotice({ id, from: data, data: JSON.stringify(next) });
    return false;
  }

  async #mails(
    notice: Notice,
    data: Readonly<Record<string, unknown>>,
  ): Promise<readonly Omit<Mail, 'accountId' | 'idempotencyKey'>[]> {
    const { repositories } = this.#services;
    if (notice.type === 'invoice.issued') return await this.#invoiceMails(notice.accountId, String(data['invoice_id']));
    if (notice.type === 'receipt.issued') return await this.#receiptMails(notice.accountId, String(data['receipt_id']));
    if (notice.type === 'refund.failed') return await this.#refundMails(notice.accountId, data);
    const members = await repositories.memberAddresses({
      accountId: notice.accountId,
      userIds: notice.recipients.members,
    });
    const addresses = new Set([...members, ...notice.recipients.addresses]);
    if (addresses.size === 0) return [];
    const { subject, text } = wordsOf(notice, data, this.#services.accountUrl());
    return [...addresses].map((to) => ({ to, subject, text, kind: kindOf(notice.type) }));
  }

  /** Mails go to the account's invoice address, or else to its owners and billing members. */
  async #receiptMails(accountId: string, id: string) {
    const { repositories, print, accountUrl } = this.#services;
    const receipt = await repositories.getReceipt({ accountId, id });
    if (receipt === undefined) return [];
    const { buyer, seller, totalCents, method, corrects } = readReceipt(receipt);
    const addresses = buyer.email === null ? await repositories.payersOf({ accountId }) : [buyer.email];
    if (addresses.length === 0) return [];
    const paper = receiptPaper(receipt);
    const name = `${receiptNames[receipt.kind]} ${receipt.number}`;
    const text = [
      corrects === null
        ? `${centsText(totalCents)} was paid for account ${accountId}: ${method}.`
        : `${name} for ${centsText(totalCents)} corrects ${corrects.number} of account ${accountId}.`,
      '',
      `${name} is attached, and stays at:`,
      `${accountUrl()}/v1/receipts/${receipt.id}.html`,
    ].join('\n');
    const attachments = [{ name: fileNameOf(paper), contentType: 'application/pdf', content: await print(paper) }];
    const subject = `${name}${seller === null ? '' : ` from ${seller.name}`}`;
    return addresses.map((to) => ({ to, subject, text, kind: 'receipt', attachments }));
  }

  async #refundMails(accountId: string, data: Readonly<Record<string, unknown>>) {
    const { repositories, accountUrl } = this.#services;
    const money = (name: string): string => dollars(BigInt(Number(data[name])));
    const text = [
      `The refund of ${money('amount_microcents')} of ${String(data['topup_id'])} has failed: the bank rejected it.`,
      `${money('given_back_microcents')} is back in the credit of account ${accountId}.`,
      '',
      'You can use the credit, or agree on another way of refund with the operator of the service.',
      '',
      `${accountUrl()}/`,
    ].join('\n');
    const addresses = await repositories.payersOf({ accountId });
    return addresses.map((to) => ({ to, subject: 'A refund has failed', text, kind: 'refund' }));
  }

  async #invoiceMails(accountId: string, id: string) {
    const { repositories, print, accountUrl } = this.#services;
    const invoice = await repositories.getInvoice({ accountId, id });
    if (invoice === undefined) return [];
    const data = readData(invoice);
    const { buyer, seller, totalCents } = data;
    if (buyer.email === null) return [];
    const name = nameOf(data);
    const paper = paperOf(invoice);
    return [
      {
        to: buyer.email,
        subject: `${name} ${invoice.number}${seller === null ? '' : ` from ${seller.name}`}`,
        text: [
          `${name} ${invoice.number} for ${invoice.month}: ${centsText(totalCents)}.`,
          '',
          'It is attached, and stays at:',
          `${accountUrl()}/v1/invoices/${invoice.id}.html`,
          '',
          'Usage is paid from the credit of the account: there is nothing to pay.',
        ].join('\n'),
        kind: 'invoice',
        attachments: [
          {
            name: fileNameOf(paper),
            contentType: 'application/pdf',
            content: await print(paper),
          },
        ],
      },
    ];
  }
}

function kindOf(type: string): string {
  if (type === 'auto_topup.failed') return 'auto_topup';
  return type.startsWith('balance.') ? 'low_balance' : 'spend_alert';
}

/** The text of a mail. Names are the customer's own input, printed as plain text. */
function wordsOf(notice: Notice, data: Readonly<Record<string, unknown>>, accountUrl: string) {
  if (notice.type === 'auto_topup.failed')
    return {
      subject: 'Automatic top-up has stopped',
      text: [
        `Account ${notice.accountId}`,
        '',
        `The last ${Number(data['failures'])} charges have failed: ${String(data['reason'])}`,
        'No further charge will be attempted. Requests are served until the credit is used up.',
        'To continue, pay once by hand, which also saves the payment method again, and turn automatic top-up back on.',
        '',
        `${accountUrl}/topup`,
      ].join('\n'),
    };
  return alertWords(notice.type, data, accountUrl);
}

function alertWords(type: string, data: Readonly<Record<string, unknown>>, accountUrl: string) {
  const money = (value: unknown): string => dollars(BigInt(Number(value)));
  const name = String(data['name']);
  const seen = money(data['observed_microcents']);
  const rule =
    typeof data['runway_days'] === 'number'
      ? `credit for ${data['runway_days']} days at the rate of the last 7`
      : `${money(data['threshold_microcents'])}${typeof data['interval'] === 'string' ? ` a ${data['interval']}` : ''}`;
  const subjectOf = data['subject'] as { readonly kind: string; readonly id?: string } | undefined;
  const whom = subjectOf?.id === undefined ? 'The account' : `The ${subjectOf.kind} ${subjectOf.id}`;
  const foot = ['', `The rule is: ${rule}. You can change your alerts at:`, `${accountUrl}/`];
  switch (type) {
    case 'spend_alert.fired':
      return {
        subject: `Spending alert: ${name}`,
        text: [`${whom} has spent ${seen} in the current ${String(data['interval'])}.`, ...foot].join('\n'),
      };
    case 'spend_alert.ended':
      return {
        subject: `Spending alert has ended: ${name}`,
        text: [
          `${whom} has spent ${seen} in the current ${String(data['interval'])}, which is below the threshold.`,
          ...foot,
        ].join('\n'),
      };
    case 'balance.low':
      return { subject: `Low balance: ${name}`, text: [`The account has ${seen} left.`, ...foot].join('\n') };
    case 'balance.ok':
      return {
        subject: `Balance is sufficient again: ${name}`,
        text: [`The account has ${seen}.`, ...foot].join('\n'),
      };
    default:
      throw new Error(`there is no mail for ${type}`);
  }
}
