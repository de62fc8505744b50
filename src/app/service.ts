import type { FirstAccount } from '../accounts/first-account.ts';
import type { OpenBackend } from './backends.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import type { ReloadOutcome } from '../config/reload-outcome.ts';
import type { LogOutput } from '../platform/log.ts';
import type { FetchProgress } from '../inference/model-files/meter.ts';
import type { HowStopped } from './listening.ts';

export interface ServiceOptions {
  readonly config: Config;
  readonly environment: Environment;
  /** Version of the program, for the metrics and the status. */
  readonly version: string;
  /** Reads the configuration again while `running` is in force, or in its place a text; throws `ConfigError`. */
  readonly readConfig: (running: Config, text?: string) => Config;
  /** The path of the configuration file, which may not exist. */
  readonly configFile: string;
  readonly log: LogOutput;
  /** The program of a worker, for configurations with several. */
  readonly workerEntry: URL;
  /** Called when an indispensable part of the service has died; end the process. */
  readonly onFatal: (error: Error) => void;
  readonly onDownload: (modelId: string, progress: FetchProgress) => void;
}

/** What the start reports about a backend. */
export type StartedBackend = Pick<
  OpenBackend,
  'modelId' | 'contextLength' | 'label' | 'config' | 'ready' | 'modelFile' | 'compute'
>;

export interface Service {
  readonly inferenceUrl: string;
  readonly accountUrl: string;
  /** Set if this start created the first account: its key is displayed only once, now. */
  readonly firstAccount: FirstAccount | undefined;
  /** Set while the server has no operator: opening the link within half an hour creates one. */
  readonly ownerLink: string | undefined;
  /** The backends that the service started with. */
  readonly backends: readonly StartedBackend[];
  /** Names of the migrations that this start ran; all of them on a new database. */
  readonly migrated: readonly string[];
  /** Reads the configuration again; faults are in the outcome. */
  reload(): Promise<ReloadOutcome>;
  /** Takes no new work after the configured delay, lets running requests end within the configured time, and closes everything. */
  stop(how?: HowStopped): Promise<void>;
  /** Ends all running requests immediately, each with its error, for a stop that must not take longer. */
  cut(): void;
}
