import type { OperationServices } from '../accounts/operation.ts';
import type { Config } from '../config/config.ts';
import type { Mailer } from '../notifications/mail/mailer.ts';
import type { Users } from '../accounts/users/users.ts';
import type { DemoProvider } from '../billing/payments/demo.ts';
import type { Payments } from '../billing/payments/payments.ts';
import type { Paper } from '../billing/invoices/paper.ts';
import type { WebhookEvents } from '../notifications/webhooks/events.ts';

export type AccountEvents = Pick<WebhookEvents, 'emit' | 'ping'>;

/** What the routes of the account host work with. A part of the host adds its own line here. */
export interface AccountServices {
  /** The books, and how they are changed: the same as the command line's. */
  readonly operations: OperationServices;
  readonly config: () => Config;
  /** Where this host is reached, without a slash at its end. */
  readonly accountUrl: () => string;
  /** Where models run, and whether they can. */
  readonly backends?: () => BackendStates | Promise<BackendStates>;
  /** Durable, then sent. */
  readonly mailer: Mailer;
  /** Who signs in. */
  readonly users: Users;
  /** Undefined: nobody takes payments here. */
  readonly payments?: Payments | undefined;
  /** Set where the built-in provider takes them. */
  readonly demo?: DemoProvider | undefined;
  /** Tells webhook endpoints what has happened to an account. */
  readonly events: AccountEvents;
  /** As a PDF. */
  readonly print: (paper: Paper) => Promise<Uint8Array>;
  /** What deliveries to an endpoint are signed with, by its number of rotations. */
  readonly webhookSecret: (endpointId: string, version: number) => string;
  /** Throws `unsupported_value` for an address that nothing is sent to. */
  readonly checkWebhookUrl: (url: string) => void;
}

export type BackendStates = readonly {
  readonly modelId: string;
  readonly label: string;
  readonly state: 'starting' | 'ready' | 'failed';
}[];
