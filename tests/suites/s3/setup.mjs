// A real S3-compatible server: the Versity S3 Gateway (Apache-2.0), which keeps objects in a folder. One binary, built from
// its Go module once and kept among the caches.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';

const version = 'v1.8.0';
const module = 'github.com/versity/versitygw/cmd/versitygw';
const remedy =
  'install Go 1.24 or newer (https://go.dev/doc/install; Debian: apt-get install golang), or set VERSITYGW to a versitygw that runs';

/** The tests take the one that was found here. */
export function setup() {
  const named = process.env.VERSITYGW;
  if (named !== undefined) {
    if (runs(named)) return { VERSITYGW: path.resolve(named) };
    throw new Error(`VERSITYGW names ${named}, which does not run. Name a versitygw, or unset it to have one built`);
  }
  if (process.platform === 'win32') throw new Error('versitygw runs on Linux and macOS only');
  const folder = cacheFolder(`versitygw-${version}`);
  const binary = path.join(folder, 'versitygw');
  if (!runs(binary)) build(folder, binary);
  return { VERSITYGW: binary };
}

const runs = (file) => spawnSync(file, ['--version'], { stdio: 'ignore', timeout: 30_000 }).status === 0;

/** Under another name first: whoever is killed leaves nothing that looks whole. */
function build(folder, binary) {
  if (spawnSync('go', ['version'], { stdio: 'ignore' }).status !== 0) throw new Error(`Go is missing: ${remedy}`);
  const work = fs.mkdtempSync(path.join(folder, 'building-'));
  try {
    // Two minutes on two cores; gently, because other work may run beside it.
    const { status } = spawnSync('nice', ['go', 'install', `${module}@${version}`], {
      env: { ...process.env, GOBIN: work, GOFLAGS: '', CGO_ENABLED: '0' },
      stdio: ['ignore', 2, 2],
    });
    const built = path.join(work, 'versitygw');
    if (status !== 0 || !runs(built)) throw new Error(`versitygw could not be built: ${remedy}`);
    fs.renameSync(built, binary);
  } finally {
    fs.rmSync(work, { recursive: true, force: true });
  }
}
