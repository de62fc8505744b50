import path from 'node:path';

import { OperationError } from '../accounts/operation.ts';
import { SecretError } from '../accounts/secret.ts';
import type { Config } from '../config/config.ts';
import { runnable } from '../config/environment.ts';
import { ConfigError, type Problem } from '../config/problem.ts';
import { ModelFileError, SourceProblem } from '../inference/model-files/problem.ts';
import { BucketError } from '../platform/s3/bucket.ts';
import { ServerToolError } from '../store/postgres/server-tool-error.ts';
import { StoreError } from '../store/store-error.ts';
import { folderFault, quoted } from './folder.ts';
import type { Printer } from './output.ts';
import { freePortNear, portHolder } from './port.ts';
import { CommandFailure } from './command-failure.ts';
import type { Failure } from './command-failure.ts';

/** The codes of sysexits.h, and 1 for refusals and problems found. */
export const exitCodes = { refused: 1, usage: 64, unavailable: 69, configuration: 78 } as const;

/** Reports what went wrong, on standard error; with `--json` also as a value on standard output. Never a stack. */
export function explain(given: Failure, print: Printer): void {
  const said = (lines: readonly string[]): string[] => lines.map((line) => runnable(line));
  const failure = { ...given, what: said(given.what), repair: said(given.repair) };
  if (print.json) {
    const { what, why, repair, exitCode } = failure;
    print.result({ error: what.join('\n'), why, repair, exit_code: exitCode }, []);
  }
  for (const line of failure.what) print.say(line);
  print.say(`  why     ${failure.why}`);
  for (const [index, line] of failure.repair.entries()) print.say(`  ${index === 0 ? 'repair' : '   or '}  ${line}`);
}

/**
 * `directory` is the folder in which its commands are typed; `config`, if readable, locates the folders and ports to check for the
 * real reason.
 */
export async function failureOf(error: unknown, directory: string, config?: Config): Promise<Failure> {
  if (error instanceof ConfigError) return ofConfig(error);
  if (error instanceof OperationError) return ofOperation(error);
  if (error instanceof ModelFileError) return ofModelFile(error);
  if (error instanceof CommandFailure) return error.failure;
  const { code, port } = error as { readonly code?: string; readonly port?: number };
  if (port !== undefined && code !== undefined) return await ofPort(error as PortError, config);
  const ofFolder = config === undefined ? undefined : ofDataFolder(error, directory, config);
  if (ofFolder !== undefined) return ofFolder;
  if (error instanceof StoreError) return ofStore(error);
  if (error instanceof SecretError) return ofSecret(error);
  if (error instanceof BucketError) return ofBucket(error);
  if (error instanceof ServerToolError) return ofServerTool(error);
  return {
    what: [error instanceof Error ? error.message : String(error)],
    why: error instanceof SourceProblem ? 'the source does not have the requested file' : 'this is an unexpected error',
    repair: ['tokenhouse doctor'],
    exitCode: exitCodes.unavailable,
  };
}

function ofConfig({ problems }: ConfigError): Failure {
  const [first] = problems;
  const [, file, line] = /^(.*):(\d+):\d+$/.exec(first?.where ?? '') ?? [];
  const isOption = first?.where.startsWith('--') === true;
  return {
    what: problems.map(({ where, what }) => `${where}: ${what}`),
    why: 'a configuration with a problem is not used, not even in part, so nothing was done',
    repair: [
      (first === undefined ? undefined : repairOfVariable(first)) ??
        (isOption
          ? 'tokenhouse serve --help'
          : file !== undefined
            ? `\${EDITOR:-vi} +${line} ${quoted(file)} && tokenhouse config check ${quoted(file)}`
            : 'tokenhouse init'),
    ],
    exitCode: isOption ? exitCodes.usage : exitCodes.configuration,
  };
}

/** The command that repairs a problem with an environment variable; undefined for other problems. */
export function repairOfVariable({ where }: Problem): string | undefined {
  if (where === 'TOKENHOUSE_SECRET') return 'export TOKENHOUSE_SECRET="$(openssl rand -hex 32)"';
  return /^[A-Z_][A-Z0-9_]*$/.test(where) ? `unset ${where}` : undefined;
}

function ofOperation(error: OperationError): Failure {
  // "There is no key key_x. List them with: tokenhouse keys list"
  const [, command] = /: ((?:tokenhouse|npm) [a-z -]+)$/.exec(error.message) ?? [];
  return {
    what: [error.message],
    why: 'nothing was changed',
    repair: [command ?? 'tokenhouse --help'],
    exitCode: exitCodes.refused,
  };
}

function ofModelFile(error: ModelFileError): Failure {
  return {
    what: [error.message],
    why: 'a model is loaded only from a file with the sha256 in tokenhouse.yaml',
    repair: [`cp /path/to/the/file.gguf ${quoted(error.directory)}/ && tokenhouse models pull`, ...error.remedies],
    exitCode: exitCodes.unavailable,
  };
}

interface PortError {
  readonly code: string;
  readonly port: number;
  readonly address?: string;
}

async function ofPort({ code, port, address = 'this computer' }: PortError, config?: Config): Promise<Failure> {
  const option = config?.server.account.port === port ? '--account-port' : '--port';
  const setting = option === '--port' ? 'server.inference.port' : 'server.account.port';
  const host = option === '--port' ? 'server.inference.host' : 'server.account.host';
  const other = `tokenhouse serve ${option} ${await freePortNear(port < 1024 ? 8080 : port, address)}`;
  const forGood = `set another one in tokenhouse.yaml: ${setting}`;
  const unavailable = exitCodes.unavailable;
  switch (code) {
    case 'EADDRINUSE': {
      const holder = portHolder(port);
      return {
        what: [`Port ${port} of ${address} is taken, so the service cannot listen there.`],
        why: holder === undefined ? 'another program listens there' : `${holder} listens there`,
        repair: [other, forGood],
        exitCode: unavailable,
      };
    }
    case 'EACCES':
      return {
        what: [`Port ${port} of ${address} cannot be opened by this user.`],
        why: 'ports below 1024 belong to the administrator on most systems',
        repair: [other, forGood],
        exitCode: unavailable,
      };
    default:
      return {
        what: [`The service cannot listen on port ${port} of ${address} (${code}).`],
        why: 'this computer has no network interface with that address',
        repair: ['tokenhouse config show', `set another address in tokenhouse.yaml: ${host}`],
        exitCode: exitCodes.configuration,
      };
  }
}

/** The system's error about a folder often hides the reason ("unable to open database file"), so the folder is checked. */
function ofDataFolder(error: unknown, from: string, config: Config): Failure | undefined {
  const { code, cause, errcode } = error as {
    readonly code?: string;
    readonly cause?: { readonly code?: string };
    /** SQLite's error code. */
    readonly errcode?: number;
  };
  const isOfFiles =
    errcode !== undefined ||
    (error instanceof StoreError && ['unusable', 'full', 'failed'].includes(error.code)) ||
    ['EACCES', 'EPERM', 'EROFS', 'ENOSPC', 'EDQUOT'].includes(code ?? cause?.code ?? '');
  if (!isOfFiles) return undefined;
  const { directory } = config.storage;
  const fault = folderFault(directory);
  if (fault === undefined) return undefined;
  const elsewhere = 'or keep the data elsewhere, in tokenhouse.yaml: storage: sqlite:/another/folder/tokenhouse.db';
  const shown = path.relative(from, fault.at) || '.';
  switch (fault.kind) {
    case 'not-writable':
      return {
        what: [`This user cannot write to the data folder ${directory}.`],
        why: `accounts, keys and the ledger are kept there, and ${fault.at} belongs to another user or has a mode that forbids it`,
        repair: [`sudo chown -R "$(id -un)" ${quoted(shown)}`, elsewhere],
        exitCode: exitCodes.unavailable,
      };
    case 'read-only':
      return {
        what: [`The data folder ${directory} is on a read-only file system.`],
        why: 'accounts, keys and the ledger are kept there',
        repair: [`findmnt -T ${quoted(shown)}`, elsewhere],
        exitCode: exitCodes.unavailable,
      };
    case 'full':
      return {
        what: [`The disk of the data folder ${directory} is full: ${fault.freeBytes} bytes are free.`],
        why: 'only durable writes are acknowledged, so nothing was lost',
        repair: [`df -h ${quoted(shown)}`, elsewhere],
        exitCode: exitCodes.unavailable,
      };
  }
}

function ofStore(error: StoreError): Failure {
  const why: Readonly<Record<StoreError['code'], string>> = {
    busy: 'the owning process keeps balances in memory; a second process would spend the same money again',
    full: 'only durable writes are acknowledged',
    insufficient: 'the debit would take the account below its limit',
    conflict: 'the id or idempotency key was used for something else',
    not_found: 'the row does not exist',
    gone: 'details of requests are kept for as long as the operator has said',
    invalid: 'it violates a rule of the database schema',
    unusable: 'a service that cannot trust its ledger does not start',
    failed: 'the database cancelled the operation',
  };
  return {
    what: [error.message],
    why: why[error.code],
    repair: ['tokenhouse doctor'],
    exitCode: exitCodes.unavailable,
  };
}

function ofSecret({ message }: SecretError): Failure {
  return {
    what: [message],
    why: 'keys are looked up by a hash that depends on the secret: with another secret no key would match',
    repair: ['tokenhouse keys list', 'restore the secret from a backup, or unset TOKENHOUSE_SECRET'],
    exitCode: exitCodes.configuration,
  };
}

function ofBucket({ message }: BucketError): Failure {
  return {
    what: [`${message.charAt(0).toUpperCase()}${message.slice(1)}.`],
    why: 'the S3 service refused it or did not answer; nothing incomplete has a name there, and no database was changed',
    repair: [
      'check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do with the bucket',
      'tokenhouse config show',
    ],
    exitCode: exitCodes.unavailable,
  };
}

function ofServerTool({ message }: ServerToolError): Failure {
  return {
    what: [message],
    why: 'backups of PostgreSQL are made and restored by its own programs, pg_dump and pg_restore; nothing incomplete has a name',
    repair: [
      'pg_dump --version',
      "install those of the server's version or a later one (Debian: apt-get install postgresql-client)",
    ],
    exitCode: exitCodes.unavailable,
  };
}
