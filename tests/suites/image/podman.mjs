import fs from 'node:fs';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import { isStarted } from '../../../scripts/setup.mjs';

const [storage, engine] = ['storage.conf', 'containers.conf'];
/** Who has made a folder. */
const owner = 'owner';

/** A folder for the Podman of a run, which belongs to this process. */
export function podmanFolder(place) {
  const folder = fs.mkdtempSync(path.join(place, prefix));
  fs.writeFileSync(path.join(folder, owner), processName(process.pid));
  return folder;
}
const prefix = 'tokenhouse-image-';

/** Clears what runs have left whose process is no more: one that is stopped has no time to end its containers. */
export function clearEnded(place) {
  for (const name of fs.readdirSync(place)) {
    const folder = path.join(place, name);
    if (name.startsWith(prefix) && hasEnded(folder)) clearPodman(folder);
  }
}

function hasEnded(folder) {
  const file = path.join(folder, owner);
  // One that is being made has no owner yet, and one that could not be removed completely has none any more.
  if (!fs.existsSync(file)) return Date.now() - fs.statSync(folder).mtimeMs > 60_000;
  const name = fs.readFileSync(file, 'utf8');
  return processName(name.split(' ')[0]) !== name;
}

/** Its number and when it began: numbers are used again. '': there is none. */
function processName(pid) {
  try {
    const fields = fs
      .readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    return `${pid} ${fields[19]}`;
  } catch {
    return '';
  }
}

/** Ends all containers of a folder's Podman and removes the folder, with what is mounted below it. */
export function clearPodman(folder) {
  const env = {
    ...process.env,
    CONTAINERS_STORAGE_CONF: path.join(folder, storage),
    CONTAINERS_CONF: path.join(folder, engine),
  };
  // In a network of its own: rules of this computer's firewall are not for it to change.
  // Without its configuration Podman would take the containers of this computer for its own.
  const isConfigured = [storage, engine].every((name) => fs.existsSync(path.join(folder, name)));
  for (const what of isConfigured ? [['pod', 'rm'], ['rm']] : [])
    spawnSync('unshare', ['--net', 'podman', ...what, '--all', '--force', '--time', '0'], { env, stdio: 'ignore' });
  // What cleans up behind a container that has ended may mount the storage again meanwhile.
  for (let tries = 1; ; tries++) {
    unmountBelow(folder);
    try {
      return fs.rmSync(folder, { recursive: true, force: true });
    } catch (error) {
      if (tries === 20) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 250);
    }
  }
}

function unmountBelow(folder) {
  const mounts = [...fs.readFileSync('/proc/self/mounts', 'utf8').matchAll(/^\S+ (\S+)/gm)];
  for (const [, mounted] of mounts.toReversed())
    if (mounted.startsWith(`${folder}/`)) spawnSync('umount', ['--lazy', mounted], { stdio: 'inherit' });
}

/**
 * Variables with which Podman keeps everything below a folder and leaves alone what its user has. `stores` are folders of images that
 * others have made.
 */
export function podmanConfiguration(folder, stores = []) {
  const quoted = (value) => JSON.stringify(value);
  const inFolder = (name) => quoted(path.join(folder, name));
  fs.writeFileSync(
    path.join(folder, storage),
    `[storage]
driver = "overlay"
graphroot = ${inFolder('storage')}
runroot = ${inFolder('run')}
[storage.options]
additionalimagestores = [${stores.map(quoted).join(', ')}]
`,
  );
  // As root Podman raises the limits of files and processes, and where this process may not do that, no container starts.
  const files = spawnSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }).stdout.trim();
  // crun starts nothing where both versions of cgroups are mounted.
  fs.writeFileSync(
    path.join(folder, engine),
    `[containers]
default_ulimits = ["nofile=${files}:${files}", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "runc"
tmp_dir = ${inFolder('tmp')}
[network]
network_backend = "netavark"
network_config_dir = ${inFolder('networks')}
`,
  );
  return { CONTAINERS_STORAGE_CONF: path.join(folder, storage), CONTAINERS_CONF: path.join(folder, engine) };
}

// `node podman.mjs FOLDER` clears it; a process that is being ended can wait for no promise.
if (isStarted(import.meta.url)) clearPodman(process.argv[2]);
