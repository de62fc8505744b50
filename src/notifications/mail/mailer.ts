/** A mail to one recipient. */
export interface Mail {
  /** An email address, already checked. */
  readonly to: string;
  readonly subject: string;
  /** Plain text, lines of any length. */
  readonly text: string;
  /** The type of mail, for readers of the outbox: `invitation`, `verification`, `low_balance`. */
  readonly kind: string;
  /** The account that it concerns; null: no account. */
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
  /** Resolves when the mail is durable in the outbox; from there it is sent if SMTP is configured, with retries after failures. */
  send(mail: Mail): Promise<void>;
}
