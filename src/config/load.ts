import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import type { Config } from './config.ts';
import type { Environment } from './environment.ts';
import type { Override } from './overrides.ts';
import { ConfigError } from './problem.ts';
import { readConfig } from './read.ts';
import type { SchemaNode } from '../platform/schema-node.ts';

export interface LoadOptions {
  readonly environment: Environment;
  /** The value of `--config`. */
  readonly path?: string | undefined;
  /** The folder that is searched for `tokenhouse.yaml`, and the base of relative paths without one. */
  readonly directory: string;
  /** Schema of one script of a `scripted` backend; without it scripts are taken as they are. */
  readonly scriptSchema?: SchemaNode | undefined;
  /** Settings from command line options. */
  readonly overrides?: readonly Override[] | undefined;
  /** The configuration in use while this one is read: changes that need a restart are refused. */
  readonly running?: Config | undefined;
  /** In place of what is in the file: a text that is not written yet. */
  readonly text?: string | undefined;
}

/**
 * Loads the configuration from `--config`, else from `TOKENHOUSE_CONFIG`, else from `tokenhouse.yaml` in the service's folder, else
 * the defaults. A named file that does not exist is an error, never the defaults. Throws `ConfigError`.
 */
export function loadConfig(options: LoadOptions): Config {
  const { text: inFile, ...found } = findConfig(options);
  const { environment, scriptSchema, overrides, running } = options;
  return readConfig(options.text ?? inFile, { ...found, environment, scriptSchema, overrides, running });
}

export interface FoundConfig {
  readonly text: string;
  /** Absolute path; `undefined` if there is no file and the text is empty. */
  readonly file: string | undefined;
  readonly shownAs: string;
  readonly directory: string;
}

/** The text that `loadConfig` reads. Throws `ConfigError`. */
export function findConfig(options: Omit<LoadOptions, 'scriptSchema'>): FoundConfig {
  const { environment, path: given, directory, running } = options;
  const { file, shownAs, isNamed } = configPlace(given, directory, environment);
  // If a file in use has disappeared, that is also an error, not a return to the defaults.
  if (!isNamed && !existsSync(file) && running?.file === undefined)
    return { text: '', file: undefined, shownAs, directory: path.dirname(file) };
  return { text: textOf(file, shownAs), file, shownAs, directory: path.dirname(file) };
}

/** The path of the configuration, which may not exist: `given` by `--config`, else by the environment, else the service's own file. */
export function configPlace(
  given: string | undefined,
  directory: string,
  environment: Environment,
): { readonly file: string; readonly shownAs: string; readonly isNamed: boolean } {
  const named = given ?? environment.configFile;
  if (named !== undefined) return { file: path.resolve(directory, named), shownAs: named, isNamed: true };
  const folder = serviceFolder(directory, environment);
  const file = path.join(folder, configName);
  return { file, shownAs: folder === directory ? configName : file, isNamed: false };
}

const configName = 'tokenhouse.yaml';

/** The folder itself if a service has been set up there, which is then continued. */
function serviceFolder(directory: string, { dataDirectory }: Environment): string {
  const isHere = [configName, path.join('data', 'tokenhouse.db')].some((name) =>
    existsSync(path.join(directory, name)),
  );
  return isHere || dataDirectory === undefined ? directory : dataDirectory;
}

const fileBytesMax = 4 * 1024 * 1024;

function textOf(file: string, shownAs: string): string {
  try {
    const { size } = statSync(file);
    if (size > fileBytesMax)
      throw new ConfigError([
        {
          where: shownAs,
          what: `has ${size} bytes, more than the allowed ${fileBytesMax}; check that this is the right file`,
        },
      ]);
    return new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(file));
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new ConfigError([{ where: shownAs, what: unreadable(error) }]);
  }
}

function unreadable(error: unknown): string {
  switch ((error as NodeJS.ErrnoException).code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return 'does not exist; correct the path, or leave it out to use the defaults';
    case 'EACCES':
    case 'EPERM':
      return 'cannot be read by this user; change its owner or its mode';
    case 'EISDIR':
      return 'is a folder; name the file in it';
    case 'ERR_ENCODING_INVALID_ENCODED_DATA':
      return 'is not UTF-8 text; save it as UTF-8';
    case undefined:
    default:
      return `cannot be read (${(error as Error).message}); check the path`;
  }
}
