import type { Config } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import type { Environment } from '../config/environment.ts';
import { loadConfig } from '../config/load.ts';
import { scriptSchema } from '../engines/scripted/script-schema.ts';

/** The configuration that a service started here would have. Throws `ConfigError`, as the service would. */
export function readContext(configPath: string | undefined): {
  readonly config: Config;
  readonly environment: Environment;
} {
  const environment = readEnvironment();
  return { config: loadConfig({ environment, path: configPath, directory: process.cwd(), scriptSchema }), environment };
}
