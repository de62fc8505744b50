import type { ModelFileSource } from '../model-files/source.ts';
import type { Secret } from './secret.ts';

/** Everything that `tokenhouse.yaml` decides, complete, checked and frozen. */
export interface Config {
  /** The file it was read from; `undefined` when there is none and the defaults are in use. */
  readonly file: string | undefined;
  readonly server: ServerConfig;
  readonly storage: StorageConfig;
  readonly accounts: AccountsConfig;
  /** At least one; ids are unique also when case is ignored (specification §2.2). */
  readonly models: readonly ModelConfig[];
}

export interface ServerConfig {
  readonly inference: ListenConfig;
  readonly account: ListenConfig;
  readonly limits: LimitsConfig;
}

export interface ListenConfig {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** How clients reach it, without a slash at the end; `undefined`: see `publicUrl` in public-url.ts. */
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
  /** How long running requests may go on after the service was told to stop. */
  readonly drainTimeoutMs: number;
  /** A client that reads nothing for this long is cut off. */
  readonly readerStallTimeoutMs: number;
  /** Requests of one account that run at the same time. */
  readonly concurrencyPerAccountMax: number;
}

export interface StorageConfig {
  readonly type: 'sqlite';
  /** Absolute path of the database file. */
  readonly path: string;
  /** Absolute path of the folder that holds it, and the generated secret beside it. */
  readonly directory: string;
}

export interface AccountsConfig {
  /** Credit that the first account is created with. */
  readonly firstCreditMicrocents: bigint;
}

export interface ModelConfig {
  readonly id: string;
  readonly displayName: string;
  readonly description: string | undefined;
  readonly ownedBy: string;
  /** Tokens of prompt and answer together. */
  readonly contextLength: number;
  /** `null`: bounded by the window only (specification §2.2). */
  readonly maxOutputTokens: number | null;
  readonly pricing: PricingConfig;
  /** What becomes of the client's sampling fields (specification, part 1). */
  readonly sampling: 'honor' | 'ignore' | 'fixed';
  readonly capabilities: CapabilitiesConfig;
  readonly template: { readonly defaultSystem: 'none' | 'template' };
  /** In the order in which they are tried; at least one. */
  readonly backends: readonly BackendConfig[];
}

/** 1 cent per million tokens is 1,000,000 microcents per million tokens. */
export interface PricingConfig {
  readonly inputMicrocentsPerMillion: bigint;
  readonly outputMicrocentsPerMillion: bigint;
  /** The input price when the file names none. */
  readonly cacheReadMicrocentsPerMillion: bigint;
}

/** Room for what later versions can do; nothing of it is built, so every flag is false. */
export interface CapabilitiesConfig {
  readonly vision: false;
  readonly tools: false;
  readonly reasoning: false;
}

export type BackendConfig = LlamaBackendConfig | OpenAiBackendConfig | ScriptedBackendConfig;

/** The embedded llama.cpp. */
export interface LlamaBackendConfig {
  readonly engine: 'llama';
  /** Label for logs and usage rows. */
  readonly name: string;
  /** In the order in which they are tried; at least one. */
  readonly sources: readonly ModelFileSource[];
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  readonly bytes: number | undefined;
  /** Requests that generate at the same time; `undefined`: the engine's choice. */
  readonly slots: number | undefined;
  /** Requests that wait for a slot. */
  readonly queueMax: number;
  readonly threads: number | undefined;
}

/** A server that speaks the OpenAI interface. */
export interface OpenAiBackendConfig {
  readonly engine: 'openai';
  readonly name: string;
  readonly flavor: OpenAiFlavor;
  /** Base URL, version path included, without a slash at the end. */
  readonly url: string;
  /** The model's id there; `undefined`: the same as ours. */
  readonly model: string | undefined;
  readonly apiKey: Secret | undefined;
  /** The operator's word that the server retains nothing of a request (reliability §4). */
  readonly zdr: boolean;
  readonly concurrencyMax: number | undefined;
}

export type OpenAiFlavor = 'llama-server' | 'openai' | 'sglang' | 'vllm';

/** Plays prepared answers. */
export interface ScriptedBackendConfig {
  readonly engine: 'scripted';
  readonly name: string;
  /** Checked against the schema that the engine itself exports. */
  readonly scripts: readonly unknown[];
}
