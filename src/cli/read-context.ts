import type { Config } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import type { Environment } from '../config/environment.ts';
import { loadConfig } from '../config/load.ts';
import type { Override } from '../config/overrides.ts';
import { scriptSchema } from '../inference/engines/scripted/script-schema.ts';

/**
 * The configuration that a service started in this folder with these variables and options would have. Throws `ConfigError`, like the
 * service.
 */
export function readContext(
  configPath: string | undefined,
  directory: string,
  variables?: Readonly<Record<string, string | undefined>>,
  overrides?: readonly Override[],
): { readonly config: Config; readonly environment: Environment } {
  const environment = readEnvironment(variables);
  return { config: loadConfig({ environment, path: configPath, directory, scriptSchema, overrides }), environment };
}
