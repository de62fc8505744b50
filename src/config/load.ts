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
  /** Where `tokenhouse.yaml` is looked for, and the base of relative paths when there is none. */
  readonly directory: string;
  /** Schema of one script of a `scripted` backend; without it scripts are taken as they are. */
  readonly scriptSchema?: SchemaNode | undefined;
  /** Settings that options of the command line give. */
  readonly overrides?: readonly Override[] | undefined;
  /** The configuration in use while this one is read: changes that need a restart are refused. */
  readonly running?: Config | undefined;
}

/**
 * The configuration: of `--config`, else of `TOKENHOUSE_CONFIG`, else of `tokenhouse.yaml` in the folder, else the defaults. A
 * named file that does not exist is an error, never the defaults. Throws `ConfigError`.
 */
export function loadConfig(options: LoadOptions): Config {
  const { text, ...found } = findConfig(options);
  const { environment, scriptSchema, overrides, running } = options;
  return readConfig(text, { ...found, environment, scriptSchema, overrides, running });
}

export interface FoundConfig {
  readonly text: string;
  /** Absolute path; `undefined` when there is no file, and the text is empty. */
  readonly file: string | undefined;
  readonly shownAs: string;
  readonly directory: string;
}

/** The text that `loadConfig` reads. Throws `ConfigError`. */
export function findConfig(options: Omit<LoadOptions, 'scriptSchema'>): FoundConfig {
  const { environment, path: given, directory, running } = options;
  const named = given ?? environment.configFile;
  const file = path.resolve(directory, named ?? 'tokenhouse.yaml');
  const shownAs = named ?? 'tokenhouse.yaml';
  // A file in use that has disappeared is an error too, not a return to the defaults.
  if (named === undefined && !existsSync(file) && running?.file === undefined)
    return { text: '', file: undefined, shownAs, directory: dataBase(directory, environment) };
  return { text: textOf(file, shownAs), file, shownAs, directory: path.dirname(file) };
}

/** The folder itself when it has data already: a service that was started there goes on there. */
const dataBase = (directory: string, { dataDirectory }: Environment): string =>
  dataDirectory === undefined || existsSync(path.join(directory, 'data', 'tokenhouse.db')) ? directory : dataDirectory;

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
