import type { Config } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import type { Environment } from '../config/environment.ts';
import { loadConfig } from '../config/load.ts';
import { scriptSchema } from '../engines/scripted/script-schema.ts';

/**
 * The configuration that a service started here, or in another folder with other variables, would have. Throws
 * `ConfigError`, as the service would.
 */
export function readContext(
  configPath: string | undefined,
  {
    directory = process.cwd(),
    variables,
  }: { readonly directory?: string; readonly variables?: Readonly<Record<string, string | undefined>> } = {},
): { readonly config: Config; readonly environment: Environment } {
  const environment = readEnvironment(variables);
  return { config: loadConfig({ environment, path: configPath, directory, scriptSchema }), environment };
}
