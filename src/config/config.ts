import type { TaxRules } from '../tax/tax.ts';
import type { Capabilities } from '../catalog/model.ts';
import type { ModelFileSource } from './model-source.ts';
import type { Secret } from './secret.ts';

/** Everything that `tokenhouse.yaml` decides, complete, checked and frozen. */
export interface Config {
  /** The file it was read from; `undefined` when there is none and the defaults are in use. */
  readonly file: string | undefined;
  readonly server: ServerConfig;
  readonly storage: StorageConfig;
  readonly accounts: AccountsConfig;
  /** Names are unique. */
  readonly plans: readonly PlanConfig[];
  readonly images: ImagesConfig;
  readonly items: ItemsConfig;
  readonly files: FilesConfig;
  readonly mail: MailConfig;
  readonly payments: PaymentsConfig;
  readonly invoices: InvoicesConfig;
  readonly webhooks: WebhooksConfig;
  readonly signIn: SignInConfig;
  /** At least one; ids are unique also when case is ignored (specification §2.2). */
  readonly models: readonly ModelConfig[];
}

export interface ServerConfig {
  readonly inference: ListenConfig;
  readonly account: ListenConfig;
  /** Processes that answer requests; 1: only the one that was started. */
  readonly workers: number;
  /** Addresses, and ranges of them, of the proxies that are trusted for a client's address. */
  readonly trustedProxies: readonly string[];
  /** Origins whose pages may call the inference host from a browser, in lower case; `*`: all. */
  readonly allowOrigins: readonly string[];
  readonly limits: LimitsConfig;
}

export interface ListenConfig {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Its address for clients, without a slash at the end; `undefined`: see `publicUrl` in public-url.ts. */
  readonly publicUrl: string | undefined;
}

/** Sizes and times of contracts decision 23 and reliability §5. */
export interface LimitsConfig {
  /** Bodies of this size and more are refused. */
  readonly bodyBytesMax: number;
  readonly bodiesInFlightBytesMax: number;
  readonly firstTokenTimeoutMs: number;
  readonly streamIdleTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** How long a stream's head waits for the first token, so that failures keep their status (contracts §1.0). */
  readonly primeTimeoutMs: number;
  /** How long running requests may go on after the service receives a stop signal. */
  readonly drainTimeoutMs: number;
  /** A client that reads nothing for this long is cut off. */
  readonly readerStallTimeoutMs: number;
  /** Requests of one account that run at the same time. */
  readonly concurrencyPerAccountMax: number;
  /** For the key-value caches of all embedded models together; `undefined`: a quarter of the free memory. */
  readonly cacheBytesMax: number | undefined;
  /** Connections that each host holds at the same time. */
  readonly connectionsMax: number;
  /** A connection is closed after this many requests. */
  readonly requestsPerConnectionMax: number;
  readonly headersTimeoutMs: number;
  /** From the first byte of a request to its last; not below the time for its headers. */
  readonly bodyTimeoutMs: number;
  readonly bodyBytesPerSecondMin: number;
  readonly keepAliveTimeoutMs: number;
  /** Requests of all accounts that run at the same time. */
  readonly requestsRunningMax: number;
  /** The size that counts as all the memory; `undefined`: that of the container or the machine. */
  readonly memoryBytesMax: number | undefined;
  /** The loads from which on work is refused. */
  readonly shedding: SheddingConfig;
}

/** Lags are of the event loop; shares of the memory are 0 to 1. */
export interface SheddingConfig {
  readonly largeBodiesLagMs: number;
  readonly newWorkLagMs: number;
  readonly newWorkMemoryShare: number;
  readonly idleConnectionsMemoryShare: number;
}

export type StorageConfig = SqliteStorageConfig | PostgresStorageConfig;

/** One process, which owns the file. */
export interface SqliteStorageConfig {
  readonly type: 'sqlite';
  /** Absolute path of the database file. */
  readonly path: string;
  /** Absolute path of the folder that holds it, and the generated secret beside it. */
  readonly directory: string;
}

/** One or several processes, replicas of each other. */
export interface PostgresStorageConfig {
  readonly type: 'postgres';
  readonly url: Secret;
  /** The password when it is not in the URL. */
  readonly password: Secret | undefined;
  /** The address without user, password and options: for messages. */
  readonly shown: string;
  /** Absolute path of the folder of this replica's control socket and, if generated, its secret. */
  readonly directory: string;
}

export interface AccountsConfig {
  /** Credit that the first account is created with. */
  readonly firstCreditMicrocents: bigint;
}

/** The limits that an account can be sold. `undefined` means unlimited. */
export interface PlanConfig {
  readonly name: string;
  /** Requests of plan keys that each window includes. */
  readonly quota: { readonly requests: number; readonly windowMs: number } | undefined;
  readonly requestsPerMinute: number | undefined;
  /** Tokens of prompts and answers together. */
  readonly tokensPerMinute: number | undefined;
  /** Requests of the account that run at the same time. */
  readonly concurrencyMax: number | undefined;
}

/** Images that requests give by their URL. */
export interface ImagesConfig {
  /** false: data URIs only. */
  readonly fetches: boolean;
  /** May be fetched at any address; written like `URL.host`. */
  readonly allowedHosts: readonly string[];
  /** Addresses, with a port where it is not 53; empty: those of the system. */
  readonly dnsServers: readonly string[];
}

/** Items of answers that later requests may name by their id. */
export interface ItemsConfig {
  /** 0: none is kept. */
  readonly keepDays: number;
}

/** Files that clients upload. */
export interface FilesConfig {
  readonly perAccountMax: number;
  readonly bytesPerAccountMax: number;
  /** `undefined`: the folder `files` beside the database. */
  readonly bucket: BucketConfig | undefined;
}

export interface BucketConfig {
  readonly name: string;
  readonly endpoint: string | undefined;
  readonly region: string;
  /** Ends with a slash unless it is empty. */
  readonly prefix: string;
  readonly pathStyle: boolean;
}

export interface PaymentsConfig {
  /** `none`: the operator adds credit. */
  readonly provider: 'stripe' | 'demo' | 'none';
  /** ISO 4217, in lower case. */
  readonly currency: string;
  /** Bounds of one top-up. */
  readonly topupCentsMin: number;
  readonly topupCentsMax: number;
  /** Set where the provider is Stripe. */
  readonly stripe:
    | {
        readonly secretKey: Secret;
        readonly webhookSecret: Secret;
        /** Replaces Stripe's own address. */
        readonly apiUrl: string | undefined;
        /** Stripe computes the tax within each payment. */
        readonly automaticTax: boolean;
      }
    | undefined;
}

export interface MailConfig {
  /** Set where `smtp` is. */
  readonly from: string | undefined;
  /** `undefined`: mail stays in the outbox. */
  readonly smtp: SmtpConfig | undefined;
}

export interface SmtpConfig {
  readonly host: string;
  readonly port: number;
  /** `starttls`: nothing is sent to a server that does not offer it. */
  readonly secure: 'starttls' | 'tls' | 'none';
  readonly user: string | undefined;
  /** Set where `user` is. */
  readonly password: Secret | undefined;
}

export interface SignInConfig {
  readonly signUp: 'invitation' | 'open';
  /** Ids are unique. */
  readonly oidc: readonly OidcConfig[];
}

/** An OpenID Connect provider. */
export interface OidcConfig {
  readonly id: string;
  readonly name: string;
  /** Without a slash at its end. */
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: Secret | undefined;
  /** Domains of the e-mail addresses that may come from there, in lower case. */
  readonly domains: readonly string[];
}

export interface ModelConfig {
  readonly id: string;
  readonly displayName: string;
  readonly description: string | undefined;
  readonly ownedBy: string;
  readonly tier: string | undefined;
  /** `YYYY-MM-DD`, a day that exists. */
  readonly deprecationDate: string | undefined;
  /** Ids of the accounts that have it to themselves; empty: every account has it. */
  readonly dedicatedTo: readonly string[];
  /** Tokens of prompt and answer together. */
  readonly contextLength: number;
  /** `null`: bounded by the window only (specification §2.2). */
  readonly maxOutputTokens: number | null;
  readonly pricing: PricingConfig;
  /** What happens to the client's sampling fields (specification, part 1). */
  readonly sampling: 'honor' | 'ignore' | 'fixed';
  /** Complete: what the file does not say is derived from the abilities of the backends. */
  readonly capabilities: Capabilities;
  /** For requests with `Service-ZDR: required`. */
  readonly zdrCapabilities: Capabilities;
  readonly template: { readonly defaultSystem: 'none' | 'template' };
  /** In the order of tries; at least one. */
  readonly backends: readonly BackendConfig[];
}

/** 1 cent per million tokens is 1,000,000 microcents per million tokens. */
export interface PricingConfig {
  readonly inputMicrocentsPerMillion: bigint;
  readonly outputMicrocentsPerMillion: bigint;
  /** The input price when the file names none. */
  readonly cacheReadMicrocentsPerMillion: bigint;
}

export type BackendConfig = LlamaBackendConfig | OpenAiBackendConfig | ScriptedBackendConfig;

interface BackendOfAnyKind {
  /** Label for logs and usage rows. */
  readonly name: string;
  /** The operator's assurance that it retains nothing of a request that asks for it (reliability §4). */
  readonly zdr: boolean;
}

/** The embedded llama.cpp. */
export interface LlamaBackendConfig extends BackendOfAnyKind {
  readonly engine: 'llama';
  /** In the order of tries; at least one. */
  readonly sources: readonly ModelFileSource[];
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  readonly bytes: number | undefined;
  /** Requests that generate at the same time; `undefined`: the engine's choice. */
  readonly slots: number | undefined;
  /** Requests that wait for a slot. */
  readonly queueMax: number;
  /** For reading prompts, at most; `undefined`: one for each core. */
  readonly threads: number | undefined;
  /** For writing; `undefined`: the fastest number measured. */
  readonly decodeThreads: number | undefined;
  /** `undefined`: the model stays loaded. */
  readonly idleUnloadMs: number | undefined;
  /** An idle engine process with more memory is replaced; `undefined`: the engine's choice. */
  readonly memoryBytesMax: number | undefined;
}

/** A server that speaks the OpenAI interface. */
export interface OpenAiBackendConfig extends BackendOfAnyKind {
  readonly engine: 'openai';
  readonly flavor: OpenAiFlavor;
  /** Base URL, version path included, without a slash at the end. */
  readonly url: string;
  /** The model's id there; `undefined`: the same as ours. */
  readonly model: string | undefined;
  readonly apiKey: Secret | undefined;
  readonly concurrencyMax: number | undefined;
  readonly queueMax: number;
  /** What happens to special tokens in the texts of clients (reliability §3.4). */
  readonly specialTokens: { readonly mode: 'pass' | 'refuse' | 'break'; readonly texts: readonly string[] };
  /** Where the model's template accepts system messages. */
  readonly systemMessages: 'anywhere' | 'first';
  /** Sampling fields beyond those of its flavor. */
  readonly forward: readonly ('top_k' | 'min_p' | 'repetition_penalty')[];
}

export type OpenAiFlavor = 'llama-server' | 'openai' | 'sglang' | 'vllm';

/** Plays prepared answers. */
export interface ScriptedBackendConfig extends BackendOfAnyKind {
  readonly engine: 'scripted';
  /** Checked against the schema that the engine itself exports. */
  readonly scripts: readonly unknown[];
}

export interface InvoicesConfig {
  /** `undefined`: documents are statements without a seller. */
  readonly seller:
    | {
        readonly name: string;
        /** Lines. */
        readonly address: readonly string[];
        readonly taxId: string | undefined;
        readonly email: string | undefined;
      }
    | undefined;
  readonly tax: TaxRules;
  readonly prefix: string;
  /** Absolute path of a font; `undefined`: one of the system. */
  readonly font: string | undefined;
}

export interface WebhooksConfig {
  /** Hosts that may have any address, and be reached without TLS; written like `URL.host` for `https`. */
  readonly allowedHosts: readonly string[];
  readonly disableAfterMs: number;
}
