import type { OperationServices } from '../accounts/operation.ts';
import type { BackendState, SourceState } from '../config/backend-state.ts';
import type { BackendLook } from '../config/backend-look.ts';
import type { Model } from '../catalog/model.ts';
import type { Config, ModelConfig } from '../config/config.ts';
import type { ConfigEditor } from '../config/editor.ts';
import type { Mailer } from '../notifications/mail/mailer.ts';
import type { Files } from '../inference/files/files.ts';
import type { Users } from '../accounts/users/users.ts';
import type { DemoProvider } from '../billing/payments/demo.ts';
import type { Payments } from '../billing/payments/payments.ts';
import type { Paper } from '../billing/invoices/paper.ts';
import type { JobReading } from '../platform/jobs/jobs.ts';
import type { FamilyFigures } from '../platform/metrics/figures.ts';
import type { ConfigReading } from '../platform/metrics/service-readings.ts';
import type { WebhookEvents } from '../notifications/webhooks/events.ts';

export type AccountEvents = Pick<WebhookEvents, 'emit' | 'ping'>;

/** The services of the account host's routes. Each part of the host adds its own entry here. */
export interface AccountServices {
  /** The ledger and its operations: the same as the command line's. */
  readonly operations: OperationServices;
  readonly config: () => Config;
  /** Address of this host, without a trailing slash. */
  readonly accountUrl: () => string;
  /** Address of the inference host, without `/v1`, for a client that called this host by this `Host`; undefined while unknown. */
  readonly inferenceUrl?: (host: string | undefined) => string | undefined;
  /** The backends of the models, and their states. */
  readonly backends?: () => readonly BackendState[] | Promise<readonly BackendState[]>;
  /** Checks whether each server answers, accepts the key, has the model, and is what the configuration says. Never rejects. */
  readonly lookAtBackends?: () => Promise<readonly BackendLook[]>;
  /** Sends a server what tests each promise of the card; undefined if there is no such server. Throws `http_409` while it tests another. */
  readonly lookAtClaims?: (asked: AskedBackend, signal: AbortSignal) => Promise<readonly ClaimLook[] | undefined>;
  /** The state of the service. */
  readonly system?: () => Promise<SystemReading>;
  /** A model of the configuration as requests see it, including what its file adds. */
  readonly modelOf?: (model: ModelConfig) => Model;
  /** The sources of backends that are not in the configuration. */
  readonly sources?: () => readonly SourceState[];
  /** The files of accounts, for reading. */
  readonly files?: Pick<Files, 'find' | 'read'>;
  /** Changes the configuration file. */
  readonly configEditor?: ConfigEditor;
  /** Asks a server what it is, and if a model is named, sends it requests. Throws `OperationError`. */
  readonly probeServer?: (asked: AskedServer, signal: AbortSignal) => Promise<ProbedServer>;
  /** Adds models that this computer runs, one at a time. */
  readonly modelAdditions?: {
    last(): ModelAddition | undefined;
    /** `price`: `0.10/0.40`, dollars per million tokens; neither it nor `isFree`: a draft. Throws `http_409` while it adds another. */
    start(wanted: {
      readonly source: string;
      readonly id: string | undefined;
      readonly price: string | undefined;
      readonly isFree: boolean;
    }): ModelAddition;
    stop(): void;
  };
  /** Stores mails durably, then sends them. */
  readonly mailer: Mailer;
  /** Users who sign in. */
  readonly users: Users;
  /** Undefined if payments are off. */
  readonly payments?: Payments | undefined;
  /** Set if the built-in provider is used. */
  readonly demo?: DemoProvider | undefined;
  /** Notifies webhook endpoints of an account's events. */
  readonly events: AccountEvents;
  /** Prints a document as a PDF. */
  readonly print: (paper: Paper) => Promise<Uint8Array>;
  /** The secret that signs deliveries to an endpoint, by its number of rotations. */
  readonly webhookSecret: (endpointId: string, version: number) => string;
  /** Throws `unsupported_value` for an address that may not be used. */
  readonly checkWebhookUrl: (url: string) => void;
}

/** A backend of the configuration, by its names there. */
export interface AskedBackend {
  readonly model: string;
  readonly backend: string;
}

export interface ClaimLook {
  readonly claim: string;
  /** What the card says that the server does. */
  readonly what: string;
  readonly state: 'kept' | 'broken' | 'unknown';
  /** What was found instead, or why nothing could be found. */
  readonly found: string | null;
}

/** A model that is being added, or was, by `tokenhouse models add`. */
export interface ModelAddition {
  readonly source: string;
  readonly state: 'running' | 'added' | 'failed' | 'stopped';
  readonly startedAt: number;
  /** The command's last line about what it does; null: none yet. */
  readonly progress: string | null;
  /** What the command printed as JSON: of the model, or of its failure. */
  readonly result: Readonly<Record<string, unknown>> | null;
}

export interface AskedServer {
  readonly url: string;
  readonly apiKey?: string | undefined;
  readonly apiKeyEnv?: string | undefined;
  readonly flavor?: string | undefined;
  readonly model?: string | undefined;
}

export interface ProbedServer {
  readonly url: string;
  readonly flavor: string;
  readonly models: readonly { readonly id: string; readonly contextLength: number | null }[];
  /** Null if no model was named. */
  readonly answer: {
    readonly kind: 'chat' | 'embeddings' | 'rerank';
    readonly tools: boolean;
    readonly reasoning: boolean;
    readonly text: string | null;
    readonly dimensions: number | null;
    readonly tokens_per_second: number;
  } | null;
}

export interface SystemReading {
  readonly version: string;
  readonly startedAt: number;
  /** The metrics of all processes. */
  readonly figures: readonly FamilyFigures[];
  readonly configuration: ConfigReading;
  readonly jobs: readonly JobReading[];
  /** Sizes of a database in a file. */
  readonly disk: { readonly bytes: number; readonly freeBytes: number } | null;
}
