// A third-party program that tests need: built once from its Go module, and kept among the caches.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';

/**
 * `{ [variable]: file }` for the environment of the tests: the program that the variable names, or one that is built here.
 * `package` is its path in its module; `version` pins it; `proof` are arguments with which it succeeds; `environment` is for builds
 * that do not use Go alone.
 * @param {{
 *   name: string, package: string, version: string, go: string, variable: string, proof: readonly string[],
 *   environment?: () => Readonly<Record<string, string>>,
 * }} program
 */
export function goProgram({ name, package: source, version, go, variable, proof, environment = () => ({}) }) {
  const runs = (file) => spawnSync(file, proof, { stdio: 'ignore', timeout: 30_000 }).status === 0;
  const named = process.env[variable];
  if (named !== undefined) {
    if (runs(named)) return { [variable]: path.resolve(named) };
    throw new Error(`${variable} names ${named}, which does not run. Name a ${name}, or unset it to have one built`);
  }
  if (process.platform === 'win32') throw new Error(`${name} is built on Linux and macOS only`);
  const remedy = `install Go ${go} or newer (https://go.dev/doc/install; Debian: apt-get install golang), or set ${variable} to a ${name} that runs`;
  const folder = cacheFolder(`${name}-${version}`);
  const binary = path.join(folder, name);
  if (runs(binary)) return { [variable]: binary };
  if (spawnSync('go', ['version'], { stdio: 'ignore' }).status !== 0) throw new Error(`Go is missing: ${remedy}`);
  // Under another name first, so that a killed process leaves nothing that looks complete.
  const work = fs.mkdtempSync(path.join(folder, 'building-'));
  try {
    // At low priority, because other work may run beside it.
    const { status } = spawnSync('nice', ['go', 'install', `${source}@${version}`], {
      env: { ...process.env, GOBIN: work, GOFLAGS: '', CGO_ENABLED: '0', ...environment() },
      stdio: ['ignore', 2, 2],
    });
    const built = path.join(work, name);
    if (status !== 0 || !runs(built)) throw new Error(`${name} could not be built: ${remedy}`);
    fs.renameSync(built, binary);
  } finally {
    fs.rmSync(work, { recursive: true, force: true });
  }
  return { [variable]: binary };
}
