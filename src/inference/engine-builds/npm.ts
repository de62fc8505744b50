import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { FetchLimits } from '../model-files/download-limits.ts';
import type { Meter } from '../model-files/meter.ts';
import { watched } from '../model-files/package-tool.ts';
import { SourceProblem } from '../model-files/problem.ts';
import { engineVersion, type BuildPackage } from './builds.ts';
import { BuildProblem } from './build-problem.ts';

export interface NpmOptions {
  /** An empty folder, in which `node_modules` is created. */
  readonly folder: string;
  readonly variables: Readonly<Record<string, string>>;
  /** The Node whose npm is used; the current one by default. */
  readonly node?: string;
  readonly limits: FetchLimits;
  readonly meter: Meter;
  readonly signal: AbortSignal;
}

/**
 * Installs packages in a folder with this computer's npm, so that its configured registry, proxy and credentials are used. A lock file
 * written here states the packages' hashes: npm unpacks nothing else, whatever the registry claims to have. No scripts run.
 */
export async function npmInstall(packages: readonly BuildPackage[], options: NpmOptions): Promise<void> {
  const { folder, meter } = options;
  const dependencies = Object.fromEntries(packages.map(({ name }) => [name, engineVersion]));
  const locked = packages.map(({ name, integrity }) => [`node_modules/${name}`, { version: engineVersion, integrity }]);
  const lock = {
    lockfileVersion: 3,
    requires: true,
    packages: { '': { dependencies }, ...Object.fromEntries(locked) },
  };
  await writeFile(path.join(folder, 'package.json'), JSON.stringify({ private: true, dependencies }));
  await writeFile(path.join(folder, 'package-lock.json'), JSON.stringify(lock));
  const cache = path.join(folder, 'cache');
  const bytes = packages.reduce((sum, each) => sum + each.packedBytes + each.bytes, 0);
  meter.begin('downloading', bytes);
  const [program, ...first] = npmCommand(options);
  const args = [
    ...[...first, 'ci', '--prefix', folder, '--cache', cache, '--ignore-scripts', '--no-audit', '--no-fund'],
    ...['--no-update-notifier', '--no-dry-run', '--no-global', '--loglevel=error'],
    ...['--fetch-retries=3', '--fetch-retry-mintimeout=500', '--fetch-retry-maxtimeout=4000'],
  ];
  const { code, errors } = await watched(program, args, { ...options, directory: folder, bytes, counts: 'all' }).catch(
    (error: unknown) => {
      options.signal.throwIfAborted();
      if (error instanceof SourceProblem) throw new BuildProblem('network', error.message, checkNetwork);
      throw new BuildProblem(
        'npm',
        'npm is not installed',
        'npm comes with Node; on Debian and Ubuntu: apt install npm',
      );
    },
  );
  if (code !== 0) throw problemOf(errors, code);
  await rm(cache, { recursive: true, force: true });
}

/** Returns npm's own JavaScript if it came with this Node, or started this process: on Windows its command is not an executable. */
function npmCommand({ variables, node = process.execPath }: NpmOptions): readonly [string, ...string[]] {
  const bin = path.dirname(node);
  const script = [
    variables['npm_execpath'],
    path.join(bin, 'node_modules', 'npm', 'bin', 'npm-cli.js'),
    path.join(bin, '..', 'lib', 'node_modules', 'npm', 'bin', 'npm-cli.js'),
  ].find((file) => file !== undefined && path.basename(file) === 'npm-cli.js' && existsSync(file));
  return script === undefined ? ['npm'] : [node, script];
}

const checkNetwork = 'check the network, and the registry and proxy that npm is configured with (npm config list)';

/** Finds the reason, which npm prints on a separate line: `npm error code EINTEGRITY`. */
export function problemOf(errors: string, code: number | null): BuildProblem {
  const reason = /^npm (?:error|ERR!) code (\S+)/m.exec(errors)?.[1];
  switch (reason) {
    case 'EINTEGRITY':
      return new BuildProblem(
        'package',
        'what the registry delivers is not the package that this version of Tokenhouse knows: its checksum is another',
        'use another registry (npm config get registry): this one is damaged, or somebody has changed the package',
      );
    case 'E404':
    case 'ETARGET':
    case 'ENOVERSIONS':
      return new BuildProblem('package', `the registry does not have the package (${reason})`, checkNetwork);
    case 'ENOSPC':
    case 'EDQUOT':
      return new BuildProblem(
        'space',
        'the disk is full',
        'free some space, or name another folder with TOKENHOUSE_MODEL_DIR',
      );
    case 'E401':
    case 'E403':
      return new BuildProblem('network', `the registry refuses access (${reason})`, 'check the credentials in .npmrc');
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
    case 'ECONNREFUSED':
    case 'ECONNRESET':
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
    case 'ENOTCACHED':
    case 'ERR_SOCKET_TIMEOUT':
      return new BuildProblem('network', `the npm registry cannot be reached (${reason})`, checkNetwork);
    case undefined:
    default: {
      const line = /^npm (?:error|ERR!) (?!code )(.*)$/m.exec(errors)?.[1] ?? '';
      const words = [reason, line.replaceAll(/\/\/[^/@\s]*@/g, '//').slice(0, 200)].filter(Boolean).join(' ');
      return new BuildProblem(
        'npm',
        words === '' ? `npm failed with code ${code}` : `npm failed: ${words}`,
        checkNetwork,
      );
    }
  }
}
