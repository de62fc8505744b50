import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import type { Printer } from './output.ts';
import type { Surroundings } from './surroundings.ts';

/** The context of a command that works on the configuration. */
export interface Context {
  readonly around: Surroundings;
  readonly config: Config;
  readonly environment: Environment;
  readonly print: Printer;
}

/** The context of a command that reads the configuration itself, or not at all. */
export interface BareContext {
  readonly around: Surroundings;
  /** The value of `--config`. */
  readonly configPath: string | undefined;
  readonly print: Printer;
}
