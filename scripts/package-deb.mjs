// Makes tokenhouse_VERSION_ARCHITECTURE.deb from the npm packages: the program, the native parts of its platform, the unit of
// `deploy/` with another command, and a user for it. The same packages yield the same bytes.
//
//   npm run build deb                             for this computer, into dist/deb
//   npm run build deb -- --from FOLDER            of the packages that `npm run build package -- --to FOLDER` made: one of each Linux
//   npm run build deb -- --to FOLDER              elsewhere
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { platforms } from './package/platforms.mjs';
import { fail, isStarted, readJson, root, say } from './setup.mjs';

const architectures = { x64: 'amd64', arm64: 'arm64' };
const folder = '/usr/lib/tokenhouse';
const command = '/usr/bin/tokenhouse';
/** The command with which the unit starts a clone. */
const commandOfClone = '/usr/bin/node /opt/tokenhouse/dist/main.js';

/** Makes the archives from the packages in the folder `parts`: one for each Linux platform there. */
export function makeDebianPackages(parts, to) {
  const chosen = platforms.filter(
    ({ os: system, cpu }) => system === 'linux' && fs.existsSync(path.join(parts, `linux-${cpu}`)),
  );
  if (chosen.length === 0) fail(`${parts} has no package for Linux. Make one with: npm run build package -- --all`);
  if (spawnSync('dpkg-deb', ['--version']).status !== 0)
    fail('dpkg-deb is missing. Install it, for example with: apt-get install dpkg');
  fs.mkdirSync(to, { recursive: true });
  return chosen.map((platform) => {
    const tree = fs.mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-deb-'));
    try {
      return makePackage({ parts, platform, tree, to });
    } finally {
      fs.rmSync(tree, { recursive: true, force: true });
    }
  });
}

function makePackage({ parts, platform, tree, to }) {
  const { name, description, version: published, engines } = readJson(path.join(parts, 'tokenhouse', 'package.json'));
  const modules = path.join(tree, folder, 'node_modules');
  fs.cpSync(path.join(parts, 'tokenhouse'), path.join(modules, name), { recursive: true });
  const native = path.join(modules, platform.name);
  // Debian's C library is glibc.
  const filter = (file) => !file.endsWith('.musl.node');
  fs.cpSync(path.join(parts, `linux-${platform.cpu}`), native, { recursive: true, filter });
  const made = { name, description, version: debianVersion(published), engines, native };
  const architecture = architectures[platform.cpu];
  const epochSeconds = timeOfSources();
  writeAround(tree, made, epochSeconds);
  const installedKilobytes = settle(tree, epochSeconds);
  writeControl(tree, { ...made, architecture, installedKilobytes });
  settle(tree, epochSeconds);
  const archive = path.join(to, `${name}_${made.version}_${architecture}.deb`);
  const { status } = spawnSync('dpkg-deb', ['--root-owner-group', '-Zxz', '--build', tree, archive], {
    stdio: ['ignore', 'ignore', 2],
    // With several threads, the data would be split differently depending on their number.
    env: { ...process.env, SOURCE_DATE_EPOCH: String(epochSeconds), DPKG_DEB_THREADS_MAX: '1' },
  });
  if (status !== 0) fail(`${archive} could not be made with dpkg-deb.`);
  const megabytes = (bytes) => (bytes / 1024 / 1024).toFixed(1);
  say(
    `package  ${path.basename(archive)} ${megabytes(fs.statSync(archive).size)} MB, installed ${megabytes(installedKilobytes * 1024)} MB`,
  );
  return archive;
}

/** A version before a release sorts before it: `1.0.0-rc.1` is `1.0.0~rc.1`. */
const debianVersion = (version) => version.replace('-', '~');

/** The time of the last commit, unless the usual variable overrides it. */
function timeOfSources() {
  const given = process.env.SOURCE_DATE_EPOCH;
  if (given !== undefined) return Number(given);
  const { stdout } = spawnSync('git', ['log', '-1', '--format=%ct'], { cwd: root, encoding: 'utf8' });
  return Number(stdout || 0);
}

/** The package's maintainer, from Debian's own variables, which the publisher sets. */
const maintainer = () => {
  const { DEBFULLNAME = 'Tokenhouse', DEBEMAIL = 'tokenhouse@localhost' } = process.env;
  return `${DEBFULLNAME} <${DEBEMAIL}>`;
};

/** Writes what is not in the npm packages: command, unit, configuration, and the documents that Debian requires. */
function writeAround(tree, { name, version }, epochSeconds) {
  const { unit, values } = unitOf();
  write(tree, '/usr/lib/systemd/system/tokenhouse.service', unit);
  write(tree, command, template('command.sh', values), 0o755);
  write(tree, '/etc/tokenhouse/tokenhouse.yaml', fs.readFileSync(inSystemd('tokenhouse.yaml'), 'utf8'));
  const documents = `/usr/share/doc/${name}`;
  write(tree, `${documents}/copyright`, template('copyright', values));
  const date = new Date(epochSeconds * 1000).toUTCString().replace('GMT', '+0000');
  const changes = `${name} (${version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- ${maintainer()}  ${date}\n`;
  write(tree, `${documents}/changelog.gz`, gzipSync(changes, { level: 9 }));
  write(tree, `/usr/share/lintian/overrides/${name}`, template('lintian-overrides', values));
}

const inSystemd = (name) => path.join(root, 'deploy', 'systemd', name);

/** The unit as this package starts it, and values for the package's scripts. */
function unitOf() {
  const text = fs.readFileSync(inSystemd('tokenhouse.service'), 'utf8');
  const unit = text.replace(commandOfClone, command);
  if (unit === text) fail(`deploy/systemd/tokenhouse.service does not start ${commandOfClone} any more.`);
  const all = (key) => [...unit.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(([, value]) => value);
  const environment = all('Environment').map((pair) => {
    const [name, value] = pair.split('=');
    return `: "\${${name}:=${value}}"\nexport ${name}`;
  });
  const values = {
    USER: all('User')[0],
    STATE: `/var/lib/${all('StateDirectory')[0]}`,
    CACHE: `/var/cache/${all('CacheDirectory')[0]}`,
    FOLDER: folder,
    PROGRAM: `${folder}/node_modules/tokenhouse/bin/tokenhouse.mjs`,
    ENVIRONMENT: environment.join('\n'),
  };
  return { unit, values };
}

function writeControl(tree, { name, description, version, engines, native, architecture, installedKilobytes }) {
  const { values } = unitOf();
  const nodeVersion = engines.node.replace('>=', '');
  const depends = [`nodejs (>= ${nodeVersion})`, 'adduser', ...librariesOf(native)];
  write(
    tree,
    '/DEBIAN/control',
    `${[
      `Package: ${name}`,
      `Version: ${version}`,
      `Architecture: ${architecture}`,
      `Maintainer: ${maintainer()}`,
      `Installed-Size: ${installedKilobytes}`,
      `Depends: ${depends.join(', ')}`,
      // Its /bin/kill reloads the configuration (ExecReload).
      'Recommends: procps',
      'Section: net',
      'Priority: optional',
      'Description: inference service, metered and billed',
      ...description.match(/.{1,76}(?:\s|$)/g).map((line) => ` ${line.trim()}`),
    ].join('\n')}\n`,
  );
  write(tree, '/DEBIAN/conffiles', '/etc/tokenhouse/tokenhouse.yaml\n');
  for (const script of ['postinst', 'prerm', 'postrm'])
    write(tree, `/DEBIAN/${script}`, template(script, values), 0o755);
}

/** The first GCC whose libstdc++ has these symbols. */
const compilers = { 29: '11', 30: '12', 31: '13', 32: '13.2', 33: '14' };

/** The system libraries that the binaries need, in the oldest versions that have their symbols. */
function librariesOf(native) {
  const newest = { GLIBC_2: 0, 'GLIBCXX_3.4': 0 };
  for (const file of filesBelow(native).filter((one) => /\.(so|node)$/.test(one)))
    for (const [, name, minor] of fs.readFileSync(file, 'latin1').matchAll(/\b(GLIBC_2|GLIBCXX_3\.4)\.(\d+)/g))
      newest[name] = Math.max(newest[name], Number(minor));
  const compiler = compilers[newest['GLIBCXX_3.4']];
  if (compiler === undefined) fail(`no GCC is known whose libstdc++ has GLIBCXX_3.4.${newest['GLIBCXX_3.4']}`);
  return [`libc6 (>= 2.${newest.GLIBC_2})`, 'libgcc-s1', `libstdc++6 (>= ${compiler})`];
}

/** Sets modes and times that do not depend on the builder. Returns the kilobytes of the files. */
function settle(tree, epochSeconds) {
  const entries = fs.readdirSync(tree, { recursive: true, withFileTypes: true });
  let kilobytes = 0;
  for (const entry of [...entries.map((one) => path.join(one.parentPath, one.name)), tree]) {
    const found = fs.statSync(entry);
    const { mode, size } = found;
    const isFolder = found.isDirectory();
    const isProgram = (mode & 0o100) !== 0 && !/\.(so|node)$/.test(entry);
    fs.chmodSync(entry, isFolder || isProgram ? 0o755 : 0o644);
    fs.utimesSync(entry, epochSeconds, epochSeconds);
    kilobytes += isFolder ? 1 : Math.ceil(size / 1024);
  }
  return kilobytes;
}

const filesBelow = (where) =>
  fs
    .readdirSync(where, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));

const template = (name, values) =>
  fs
    .readFileSync(path.join(root, 'scripts', 'package', 'debian', name), 'utf8')
    .replaceAll(/@([A-Z]+)@/g, (_, key) => values[key]);

function write(tree, file, content, mode = 0o644) {
  const target = path.join(tree, file);
  fs.mkdirSync(path.dirname(target), { recursive: true });
  fs.writeFileSync(target, content, { mode });
}

if (isStarted(import.meta.url)) {
  const { values } = parseArgs({ options: { from: { type: 'string' }, to: { type: 'string' } } });
  const to = path.resolve(values.to ?? path.join(root, 'dist', 'deb'));
  const from = path.resolve(values.from ?? path.join(root, 'dist', 'packages'));
  if (values.from === undefined) {
    const { status } = spawnSync(process.execPath, [path.join(root, 'scripts', 'package.mjs')], { stdio: 'inherit' });
    if (status !== 0) process.exit(status ?? 1);
  }
  makeDebianPackages(path.join(from, 'parts'), to);
}
