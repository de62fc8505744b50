// Mesa's lavapipe: a Vulkan device that computes with the processor, so that a build for GPUs can be tried without one.
import fs from 'node:fs';
import path from 'node:path';

const folders = ['/usr/share/vulkan/icd.d', '/etc/vulkan/icd.d', '/usr/local/share/vulkan/icd.d'];

export function setup() {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    throw new Error('the builds for GPUs are tried on Linux on x64 alone');
  const driver = folders
    .filter((folder) => fs.existsSync(folder))
    .flatMap((folder) => fs.readdirSync(folder).map((name) => path.join(folder, name)))
    .find((file) => /^lvp_icd.*\.json$/.test(path.basename(file)));
  if (driver === undefined)
    throw new Error('missing: lavapipe. Debian and Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1');
  return { TOKENHOUSE_TEST_LAVAPIPE: driver };
}
