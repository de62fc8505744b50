import type { MailConfig } from '../../config/config.ts';
import type { Log } from '../../platform/log.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { OutboxMail } from '../../store/repositories/mail.ts';
import type { Mail, Mailer } from './mailer.ts';
import { sendBySmtp } from './smtp.ts';
import type { Attempt, SmtpOptions, StoredAttachment } from './smtp.ts';

export interface OutboxOptions {
  readonly repositories: Pick<Repositories, 'addMail' | 'claimMail' | 'noteMailAttempt' | 'forgetMail'>;
  readonly config: () => MailConfig;
  readonly log: Log;
  /** Generates UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** The clock shared by all processes on the database. */
  readonly now: () => number;
  readonly trusted?: SmtpOptions['ca'];
}

/** Maximum age and number of stored mails. */
export const mailKeptMs = 7 * 86_400_000;
export const mailsKeptMax = 10_000;

/** Size limits of one mail. */
export const mailBounds = { subject: 200, text: 100_000, attachmentBytes: 5_000_000, attachments: 5 } as const;

const lookEveryMs = 15_000;
/** Maximum mails per run; the rest wait for the next one. */
const mailsAtOnce = 100;
/** A sender that has not reported the outcome of a mail for this long is considered dead. */
const claimedForMs = 300_000;

/** Pauses after the first attempt, the second, and so on; after the last one a mail is abandoned: 33 hours in total. */
export const pausesMs = [60_000, 300_000, 900_000, 3_600_000, 3 * 3_600_000, 8 * 3_600_000, 20 * 3_600_000] as const;

/**
 * Outgoing mail: durable in the database first, then sent by SMTP, with growing pauses when the server cannot take it. A process that dies
 * after the server took a mail sends it twice, with the same Message-ID. If no server is configured, mail stays available to readers of the
 * outbox until it expires.
 *
 * It has a timer rather than being a job: the recipient of a link waits for it, so mail that arrives while another is being sent follows
 * immediately, and shutdown waits for the outcome of the mail in progress.
 */
export class Outbox implements Mailer {
  readonly #options: OutboxOptions;
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #isWanted = false;
  #isClosed = false;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#poke(), lookEveryMs).unref();
    this.#poke();
  }

  /** Resolves after the mail that is being sent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    await this.#sending;
  }

  /** Throws a TypeError for a mail that no server would take; rejects with a StoreError. */
  async send(mail: Mail): Promise<void> {
    check(mail);
    const { repositories, newId, now } = this.#options;
    const attachments = mail.attachments?.map(({ name, contentType, content }): StoredAttachment => ({
      name,
      contentType,
      content: Buffer.from(content.buffer, content.byteOffset, content.byteLength).toString('base64'),
    }));
    await repositories.addMail({
      id: `mail_${Buffer.from(newId()).toString('hex')}`,
      idempotencyKey: mail.idempotencyKey ?? null,
      recipient: mail.to,
      subject: mail.subject,
      body: mail.text,
      kind: mail.kind,
      accountId: mail.accountId,
      attachments: attachments === undefined || attachments.length === 0 ? null : JSON.stringify(attachments),
      at: now(),
    });
    this.#poke();
  }

  /** Sends what is due, now or right after the mail in progress. */
  #poke(): void {
    if (this.#timer === undefined || this.#isClosed) return;
    this.#isWanted = true;
    this.#sending ??= this.#sendDue().finally(() => {
      this.#sending = undefined;
    });
  }

  async #sendDue(): Promise<void> {
    const { config, repositories, log, now } = this.#options;
    while (this.#isWanted && !this.#isClosed) {
      this.#isWanted = false;
      try {
        for (let sent = 0; sent < mailsAtOnce && !this.#isClosed; sent++) {
          const { smtp, from } = config();
          if (smtp === undefined || from === undefined) return;
          const mail = await repositories.claimMail({ now: now(), untilAt: now() + claimedForMs });
          if (mail === undefined) break;
          const attempt = await sendBySmtp(mail, { smtp, from, ca: this.#options.trusted });
          await this.#note(mail, attempt);
        }
      } catch {
        // The store is busy or closed: the claimed mail is due again soon.
        log.service({ level: 'warn', event: 'outbox_failed' });
        return;
      }
    }
  }

  async #note({ id, kind, attempts }: OutboxMail, attempt: Attempt): Promise<void> {
    const { repositories, log, now } = this.#options;
    const at = now();
    if (attempt.kind === 'sent') {
      await repositories.noteMailAttempt({ id, at, outcome: attempt });
      return;
    }
    const pauseMs = attempt.kind === 'impossible' ? undefined : pausesMs[attempts - 1];
    const { error } = attempt;
    const outcome =
      pauseMs === undefined
        ? { kind: 'failed' as const, error }
        : { kind: 'again' as const, dueAt: at + pauseMs, error };
    await repositories.noteMailAttempt({ id, at, outcome });
    log.service({
      level: 'warn',
      event: 'mail_not_sent',
      detail: { mail: id, kind, attempts, given_up: pauseMs === undefined },
    });
  }

  /** Deletes a batch of mail that is too old or beyond the maximum; false: there was none. */
  async tidy(): Promise<boolean> {
    const { repositories, now } = this.#options;
    return (await repositories.forgetMail({ before: now() - mailKeptMs, keepMax: mailsKeptMax })) > 0;
  }
}

/** The last check, wider than the rule for users' input (accounts/mail-address.ts), so that mail accepted by an older version is sent. */
const addressForm = /^[^\s<>@,;:"()[\]\\\p{Cc}]{1,64}@[^\s<>@,;:"()[\]\\\p{Cc}]{1,255}$/u;

function check({ to, subject, text, attachments = [] }: Mail): void {
  if (!addressForm.test(to)) throw new TypeError('mail cannot be sent to this address');
  if (subject.length > mailBounds.subject || /\p{Cc}/u.test(subject))
    throw new TypeError('this is not a valid subject');
  if (text.length > mailBounds.text) throw new TypeError(`a mail has at most ${mailBounds.text} characters`);
  const bytes = attachments.reduce((sum, { content }) => sum + content.byteLength, 0);
  if (attachments.length > mailBounds.attachments || bytes > mailBounds.attachmentBytes)
    throw new TypeError(`a mail has at most ${mailBounds.attachmentBytes} bytes of attachments`);
}
