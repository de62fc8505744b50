import type { ConfigInFile } from './schema.ts';

/** Everything that `tokenhouse.yaml` decides, complete, checked and frozen; the settings are in `schema.ts` and `sections/`. */
export interface Config extends ConfigInFile {
  /** The file it was read from; `undefined` if there is none and the defaults are in use. */
  readonly file: string | undefined;
  /** Settings that are fixed until a restart, by the keys of the file. */
  readonly fixed: Readonly<Record<string, unknown>>;
}

export type {
  BackendConfig,
  BackendSource,
  LlamaBackendConfig,
  OpenAiBackendConfig,
  OpenAiFlavor,
} from './sections/backends.ts';
export type { DiscoveryConfig, DnsDiscovery, FileDiscovery, KubernetesDiscovery } from './sections/discovery.ts';
export type { ModelConfig } from './sections/models.ts';
export type { SmtpConfig } from './sections/outbound.ts';
export type { LimitsConfig, ListenConfig, ServerConfig } from './sections/server.ts';
export type { OidcConfig, SignInConfig } from './sections/sign-in.ts';
export type { PostgresStorageConfig, StorageConfig } from './sections/storage.ts';
export type { TelemetryConfig } from './sections/telemetry.ts';
export type MailConfig = Config['mail'];
export type PlanConfig = Config['plans'][number];
