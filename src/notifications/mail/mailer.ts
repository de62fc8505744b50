/** A mail to one recipient. */
export interface Mail {
  /** An address, checked. */
  readonly to: string;
  readonly subject: string;
  /** Plain text, lines of any length. */
  readonly text: string;
  /** Its subject, for readers of the outbox: `invitation`, `verification`, `low_balance`. */
  readonly kind: string;
  /** The account that it is about; null: none. */
  readonly accountId: string | null;
  /** Mails with the same key are sent once. */
  readonly idempotencyKey?: string;
  readonly attachments?: readonly {
    readonly name: string;
    readonly contentType: string;
    readonly content: Uint8Array;
  }[];
}

export interface Mailer {
  /** Resolves when the mail is durable in the outbox; it is sent from there, again after a failure, where SMTP is configured. */
  send(mail: Mail): Promise<void>;
}
