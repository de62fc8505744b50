// `npm run deb -- FOLDER`: a package for Debian 13 and later, and Ubuntu 25.10 and later, whose Node is new enough. Needs dpkg-deb.
// The program is in /usr/lib/tokenhouse, its unit is deploy/systemd/tokenhouse.service, its data in /var/lib/tokenhouse.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { wholeProgram } from './packages.mjs';
import { fail, isStarted, readJson, root, setup } from './setup.mjs';
import { installAgain } from './slim.mjs';

const architectures = { x64: 'amd64', arm64: 'arm64' };

/** Resolves with the file. `version` is that of the program unless a test says otherwise. */
export async function makeDeb(folder, version = readJson(path.join(root, 'package.json')).version) {
  const architecture = architectures[process.arch];
  if (process.platform !== 'linux' || architecture === undefined)
    fail(`There is no Debian package for ${process.platform}-${process.arch}.`);
  const tree = fs.mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-deb-'));
  try {
    fs.chmodSync(tree, 0o755);
    const write = (file, text, mode = 0o644) => {
      const target = path.join(tree, file);
      fs.mkdirSync(path.dirname(target), { recursive: true });
      fs.writeFileSync(target, text, { mode });
    };
    await wholeProgram(path.join(tree, 'usr/lib/tokenhouse'));
    write('usr/bin/tokenhouse', command, 0o755);
    write('etc/tokenhouse/tokenhouse.yaml', configuration);
    const unit = fs.readFileSync(path.join(root, 'deploy/systemd/tokenhouse.service'), 'utf8');
    write('usr/lib/systemd/system/tokenhouse.service', unit);
    write('usr/share/doc/tokenhouse/copyright', fs.readFileSync(path.join(root, 'LICENSE'), 'utf8'));
    write('DEBIAN/control', controlOf(version, architecture));
    write('DEBIAN/conffiles', '/etc/tokenhouse/tokenhouse.yaml\n');
    for (const [name, script] of Object.entries(scripts)) write(`DEBIAN/${name}`, `#!/bin/sh\nset -e\n${script}`, 0o755);
    const file = path.join(folder, `tokenhouse_${version}_${architecture}.deb`);
    fs.mkdirSync(folder, { recursive: true });
    const args = ['--root-owner-group', '-Zxz', '--build', tree, file];
    if (spawnSync('dpkg-deb', args, { stdio: ['ignore', 2, 2] }).status !== 0)
      fail('The package could not be made; dpkg-deb is needed (Debian: apt-get install dpkg).');
    return file;
  } finally {
    fs.rmSync(tree, { recursive: true, force: true });
  }
}

const controlOf = (version, architecture) => `Package: tokenhouse
Version: ${version}
Architecture: ${architecture}
Maintainer: Tokenhouse
Section: net
Priority: optional
Depends: nodejs (>= 20.19), adduser, util-linux
Description: ${readJson(path.join(root, 'package.json')).description.replace(/\.$/, '')}
 A language model behind the OpenAI and Anthropic APIs, with keys, prices,
 prepaid credit and a ledger.
`;

const configuration = `# The settings of the service (docs/configuration.md); tokenhouse init FILE writes all of them with their defaults.
storage: sqlite:/var/lib/tokenhouse/tokenhouse.db
`;

/** What root asks for is done as the service's user: a file of root's among the data would stop the service. */
const command = `#!/bin/sh
export TOKENHOUSE_CONFIG="\${TOKENHOUSE_CONFIG:-/etc/tokenhouse/tokenhouse.yaml}"
export TOKENHOUSE_MODEL_DIR="\${TOKENHOUSE_MODEL_DIR:-/var/cache/tokenhouse/models}"
if [ "$(id -u)" = 0 ]; then
  export HOME=/var/lib/tokenhouse
  exec setpriv --reuid=tokenhouse --regid=tokenhouse --init-groups /usr/bin/node /usr/lib/tokenhouse/bin/tokenhouse.mjs "$@"
fi
exec /usr/bin/node /usr/lib/tokenhouse/bin/tokenhouse.mjs "$@"
`;

const scripts = {
  postinst: `if [ "$1" = configure ]; then
  adduser --quiet --system --group --no-create-home --home /var/lib/tokenhouse tokenhouse
  install -d -o tokenhouse -g tokenhouse -m 700 /var/lib/tokenhouse
  install -d -o tokenhouse -g tokenhouse -m 755 /var/cache/tokenhouse
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if [ -z "$2" ]; then systemctl enable --now tokenhouse.service; else systemctl try-restart tokenhouse.service; fi
  fi
fi
`,
  prerm: `if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now tokenhouse.service; fi
`,
  postrm: `if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
  rm -rf /var/cache/tokenhouse
  # Keys, money and usage are nobody's to delete but the operator's.
  if [ -d /var/lib/tokenhouse ]; then echo 'The data stay in /var/lib/tokenhouse; delete that folder if they are not needed any more.'; fi
fi
`,
};

if (isStarted(import.meta.url)) {
  const [folder] = process.argv.slice(2);
  if (folder === undefined) fail('usage: npm run deb -- FOLDER');
  if (!installAgain()) setup({ onlyToRun: true });
  process.stdout.write(`${await makeDeb(path.resolve(folder))}\n`);
}
