import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import type { Printer } from './output.ts';

/** What every command works with. */
export interface Context {
  readonly config: Config;
  readonly environment: Environment;
  readonly print: Printer;
}
