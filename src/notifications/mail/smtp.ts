import type { SmtpConfig } from '../../config/config.ts';
import type { OutboxMail } from '../../store/repositories/mail.ts';

/** The outcome of sending one mail. */
export type Attempt =
  | { readonly kind: 'sent' }
  /** The server may take it later. */
  | { readonly kind: 'refused'; readonly error: string }
  /** The server will never take it. */
  | { readonly kind: 'impossible'; readonly error: string };

export interface SmtpOptions {
  readonly smtp: SmtpConfig;
  readonly from: string;
  /** PEM certificates that are trusted in addition to the system's. */
  readonly ca?: string | undefined;
}

/** Timeout of each wait in an attempt; an attempt has a handful of them. */
const waitMs = 20_000;
const errorLengthMax = 500;

/** Sends one mail to the server. The error is the server's own text, shortened. */
export async function sendBySmtp(mail: OutboxMail, { smtp, from, ca }: SmtpOptions): Promise<Attempt> {
  // Loaded with the first mail: most processes send none.
  const { createTransport } = await import('nodemailer');
  const transport = createTransport({
    host: smtp.host,
    port: smtp.port,
    secure: smtp.secure === 'tls',
    requireTLS: smtp.secure === 'starttls',
    ignoreTLS: smtp.secure === 'none',
    ...(smtp.user === undefined ? {} : { auth: { user: smtp.user, pass: smtp.password?.reveal() ?? '' } }),
    tls: ca === undefined ? {} : { ca },
    dnsTimeout: waitMs,
    connectionTimeout: waitMs,
    greetingTimeout: waitMs,
    socketTimeout: waitMs,
    // No part of a mail is a file name or a URL to fetch.
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  try {
    await transport.sendMail({
      from,
      to: { name: '', address: mail.recipient },
      subject: mail.subject,
      text: mail.body ?? '',
      // Stable across attempts, so that a server that already has the mail can recognize it.
      messageId: `<${mail.id}@${domainOf(from)}>`,
      date: new Date(mail.createdAt),
      headers: { 'auto-submitted': 'auto-generated' },
      attachments: attachmentsOf(mail.attachments).map(({ name, contentType, content }) => ({
        filename: name,
        contentType,
        content: Buffer.from(content, 'base64'),
      })),
    });
    return { kind: 'sent' };
  } catch (thrown) {
    const { message, responseCode, command } = thrown as Error & { responseCode?: number; command?: string };
    const error = message.replaceAll(/\p{Cc}+/gu, ' ').slice(0, errorLengthMax);
    // Final if the server refuses the recipient or the text; the operator can fix a refused sign-in or sender.
    const isFinal = (responseCode ?? 0) >= 500 && (command === 'RCPT TO' || command === 'DATA');
    return { kind: isFinal ? 'impossible' : 'refused', error };
  } finally {
    transport.close();
  }
}

const domainOf = (from: string): string => /@([^\s<>@]+)>?$/.exec(from)?.[1] ?? 'tokenhouse.invalid';

/** In the format of `mail.attachments`; the content is base64. */
export interface StoredAttachment {
  readonly name: string;
  readonly contentType: string;
  readonly content: string;
}

const attachmentsOf = (text: string | null): readonly StoredAttachment[] =>
  text === null ? [] : (JSON.parse(text) as readonly StoredAttachment[]);
