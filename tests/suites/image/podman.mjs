import fs from 'node:fs';
import path from 'node:path';
import { spawnSync } from 'node:child_process';

/**
 * Variables with which Podman keeps everything below a folder and leaves alone what its user has. `stores` are folders of images that
 * others have made.
 */
export function podmanConfiguration(folder, stores = []) {
  const [storage, engine] = ['storage.conf', 'containers.conf'].map((name) => path.join(folder, name));
  const quoted = (value) => JSON.stringify(value);
  const inFolder = (name) => quoted(path.join(folder, name));
  fs.writeFileSync(
    storage,
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
    engine,
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
  return { CONTAINERS_STORAGE_CONF: storage, CONTAINERS_CONF: engine };
}
