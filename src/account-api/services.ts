import type { OperationServices } from '../accounts/operation.ts';
import type { BackendState, SourceState } from '../config/backend-state.ts';
import type { BackendLook } from '../config/backend-look.ts';
import type { Model } from '../catalog/model.ts';
import type { Config, ModelConfig } from '../config/config.ts';
import type { Mailer } from '../notifications/mail/mailer.ts';
import type { Users } from '../accounts/users/users.ts';
import type { DemoProvider } from '../billing/payments/demo.ts';
import type { Payments } from '../billing/payments/payments.ts';
import type { Paper } from '../billing/invoices/paper.ts';
import type { JobReading } from '../platform/jobs/jobs.ts';
import type { FamilyFigures } from '../platform/metrics/figures.ts';
import type { ConfigReading } from '../platform/metrics/service-readings.ts';
import type { WebhookEvents } from '../notifications/webhooks/events.ts';

export type AccountEvents = Pick<WebhookEvents, 'emit' | 'ping'>;

/** The services of the account host's routes. A part of the host adds its own entry here. */
export interface AccountServices {
  /** The ledger and its operations: the same as the command line's. */
  readonly operations: OperationServices;
  readonly config: () => Config;
  /** Address of this host, without a slash at the end. */
  readonly accountUrl: () => string;
  /** Address of the inference host, without `/v1`, for who has called this one by this `Host`; undefined while it is unknown. */
  readonly inferenceUrl?: (host: string | undefined) => string | undefined;
  /** The backends of the models, and how they do. */
  readonly backends?: () => readonly BackendState[] | Promise<readonly BackendState[]>;
  /** Asks each server whether it answers, accepts the key, has the model, and is what the configuration says. Never rejects. */
  readonly lookAtBackends?: () => Promise<readonly BackendLook[]>;
  /** How the service does. */
  readonly system?: () => Promise<SystemReading>;
  /** A model of the configuration as requests see it: with what its file adds. */
  readonly modelOf?: (model: ModelConfig) => Model;
  /** Where backends come from that the configuration does not list. */
  readonly sources?: () => readonly SourceState[];
  /** Durable, then sent. */
  readonly mailer: Mailer;
  /** Who signs in. */
  readonly users: Users;
  /** Undefined: payments are off. */
  readonly payments?: Payments | undefined;
  /** Set where the built-in provider is used. */
  readonly demo?: DemoProvider | undefined;
  /** Notifies webhook endpoints of an account's events. */
  readonly events: AccountEvents;
  /** As a PDF. */
  readonly print: (paper: Paper) => Promise<Uint8Array>;
  /** The secret that signs deliveries to an endpoint, by its number of rotations. */
  readonly webhookSecret: (endpointId: string, version: number) => string;
  /** Throws `unsupported_value` for an address to which nothing is sent. */
  readonly checkWebhookUrl: (url: string) => void;
}

export interface SystemReading {
  readonly version: string;
  readonly startedAt: number;
  /** The metrics of all processes. */
  readonly figures: readonly FamilyFigures[];
  readonly configuration: ConfigReading;
  readonly jobs: readonly JobReading[];
  /** Of a database in a file. */
  readonly disk: { readonly bytes: number; readonly freeBytes: number } | null;
}
