// Makes the npm packages: `tokenhouse`, which is the bundled program with the console and the documentation, and one package for
// each platform with the native parts that run. No code runs at installation. What is bundled is listed in an SBOM.
//
//   npm run build package                      for this platform, into dist/packages
//   npm run build package -- --all             for all of them; the binaries of the others are fetched, as the lock file has them
//   npm run build package -- --to FOLDER       elsewhere
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { buildPackagedProgram, engineFolder } from './bundle.mjs';
import { cacheFolder } from './cache-folder.mjs';
import { buildConsole, consoleFolder, installConsole } from './console.mjs';
import { buildDocs } from './docs-site.mjs';
import { bundledPackages, billOfMaterials, licenceTexts } from './package/bundled.mjs';
import { buildLlamaLibraries } from './native.mjs';
import { platforms } from './package/platforms.mjs';
import { fail, isStarted, readJson, root, runNpm, say, setup } from './setup.mjs';

const modules = path.join(root, 'node_modules');
const own = readJson(path.join(root, 'package.json'));
const lock = readJson(path.join(root, 'package-lock.json'));
const engineVersion = lock.packages['node_modules/node-llama-cpp'].version;

/** Metadata of all packages; the repository is known only where they are published. */
const about = {
  version: own.version,
  license: own.license,
  ...(process.env.GITHUB_REPOSITORY === undefined
    ? {}
    : { repository: { type: 'git', url: `git+https://github.com/${process.env.GITHUB_REPOSITORY}.git` } }),
};

/** Makes complete packages as folders, `tokenhouse` and one for each of these platforms, and their archives in the folder above. */
export async function makePackages(folder, chosen) {
  empty(folder);
  const parts = path.join(folder, 'parts');
  const folders = [await makeProgram(path.join(parts, 'tokenhouse'), chosen)];
  for (const platform of chosen)
    folders.push(makePlatform(path.join(parts, `${platform.os}-${platform.cpu}`), platform));
  return folders.map((made) => pack(made, folder));
}

/** Removes what an earlier run made; refuses a folder that contains anything else. */
function empty(folder) {
  fs.mkdirSync(folder, { recursive: true });
  const names = fs.readdirSync(folder);
  const other = names.find((name) => name !== 'parts' && !/^tokenhouse-.*\.tgz$/.test(name));
  if (other !== undefined)
    fail(`${folder} has something else in it (${other}), which would be lost. Name an empty folder.`);
  for (const name of names) fs.rmSync(path.join(folder, name), { recursive: true });
}

/** Makes the program, with what it serves and a list of what it is made of. */
async function makeProgram(folder, chosen) {
  const dist = path.join(folder, 'dist');
  fs.mkdirSync(dist, { recursive: true });
  const { inputs } = await buildPackagedProgram(dist);
  for (const { os, cpu, problem } of buildLlamaLibraries(dist, chosen))
    fail(
      `The embedded engine's library for ${os} on ${cpu} could not be compiled: ${problem}. Install (apt-get install -y gcc gcc-aarch64-linux-gnu).`,
    );
  await buildCommand(folder);
  await buildConsole();
  copyListed(consoleFolder, path.join(dist, 'console'));
  await buildDocs(path.join(dist, 'docs'));
  copyFrom(path.join(modules, 'node-llama-cpp'), path.join(folder, engineFolder), ['llama/binariesGithubRelease.json']);
  writeJson(path.join(folder, engineFolder, 'package.json'), { version: engineVersion });
  copyFrom(root, folder, ['LICENSE']);
  fs.copyFileSync(path.join(root, 'scripts', 'package', 'README.md'), path.join(folder, 'README.md'));
  const packages = bundledPackages(inputs);
  fs.writeFileSync(path.join(folder, 'THIRD-PARTY.txt'), licenceTexts(packages));
  writeJson(path.join(folder, 'sbom.cdx.json'), billOfMaterials({ ...own, ...about }, packages));
  const { name, description, type, engines, bin } = own;
  writeJson(path.join(folder, 'package.json'), {
    ...{ name, description, ...about, type, engines, bin },
    optionalDependencies: Object.fromEntries(platforms.map((platform) => [platform.name, about.version])),
  });
  return folder;
}

/** Builds one file that an old Node can also read, to report that it is too old. */
async function buildCommand(folder) {
  const { build } = await import('esbuild');
  await build({
    entryPoints: [path.join(root, 'scripts', 'package', 'tokenhouse.mjs')],
    outfile: path.join(folder, own.bin.tokenhouse),
    ...{ bundle: true, format: 'esm', platform: 'node', target: 'node14.18', supported: { 'top-level-await': true } },
    banner: { js: '#!/usr/bin/env node' },
    logLevel: 'error',
  });
  fs.chmodSync(path.join(folder, own.bin.tokenhouse), 0o755);
}

/** Copies only listed files: a build folder may also have files of the previous build, which open pages need. */
function copyListed(from, to) {
  const { files } = readJson(path.join(from, 'manifest.json'));
  const names = Object.keys(files).flatMap((name) => [name, `${name}.br`, `${name}.gz`]);
  copyFrom(from, to, ['manifest.json', ...names]);
}

function makePlatform(folder, { name, os, cpu, engine }) {
  const of = path.join(modules, '@photostructure', 'sqlite');
  copyFrom(of, folder, [`prebuilds/${os}-${cpu}`]);
  const binaries = packageFolder(engine);
  copyFrom(binaries, folder, ['bins']);
  const licences = [of, binaries].map((from) => fs.readFileSync(path.join(from, 'LICENSE'), 'utf8').trim());
  fs.writeFileSync(path.join(folder, 'LICENSE'), `${licences.join('\n\n---\n\n')}\n`);
  fs.writeFileSync(
    path.join(folder, 'index.cjs'),
    `const path = require('node:path');\n` +
      `exports.getBinsDir = () => ({ binsDir: path.join(__dirname, 'bins'), packageVersion: '${engineVersion}' });\n` +
      `exports.sqliteFolder = __dirname;\n`,
  );
  writeJson(path.join(folder, 'package.json'), {
    name,
    description: `The native parts of tokenhouse for ${os} on ${cpu}: SQLite and llama.cpp.`,
    ...about,
    license: 'MIT',
    main: 'index.cjs',
    ...{ os: [os], cpu: [cpu] },
  });
  return folder;
}

/** The installed package, or one fetched from the registry and verified against the lock file. */
function packageFolder(name) {
  const { version, integrity } = lock.packages[`node_modules/${name}`];
  const installed = path.join(modules, name);
  if (readJson(path.join(installed, 'package.json'))?.version === version) return installed;
  const kept = path.join(cacheFolder('packages'), `${name.replace('/', '-')}-${version}`);
  if (fs.existsSync(kept)) return path.join(kept, 'package');
  const making = fs.mkdtempSync(`${kept}.`);
  try {
    const asked = runNpm(['pack', `${name}@${version}`, '--json', '--loglevel=error'], { cwd: making, capture: true });
    if (asked.status !== 0) fail(`${name} ${version} could not be fetched. Check the network and the npm registry.`);
    const archive = path.join(making, fs.readdirSync(making)[0]);
    const found = `sha512-${createHash('sha512').update(fs.readFileSync(archive)).digest('base64')}`;
    if (found !== integrity) fail(`${name} ${version} of the registry is not the one of package-lock.json.`);
    if (spawnSync('tar', ['-xzf', archive, '-C', making], { stdio: ['ignore', 2, 2] }).status !== 0)
      fail(`${archive} could not be unpacked with tar.`);
    fs.rmSync(archive);
    fs.renameSync(making, kept);
  } finally {
    fs.rmSync(making, { recursive: true, force: true });
  }
  return path.join(kept, 'package');
}

/** Makes the archive as `npm publish` would send it. */
function pack(folder, to) {
  setRights(folder);
  const { status, stdout } = runNpm(['pack', folder, '--json', '--pack-destination', to, '--loglevel=error'], {
    capture: true,
  });
  if (status !== 0) fail(`${folder} could not be packed.`);
  const [{ name, filename, size, unpackedSize }] = [JSON.parse(stdout.toString())].flat();
  const archive = path.join(to, filename.replace(/^@/, '').replaceAll('/', '-'));
  const megabytes = (bytes) => (bytes / 1024 / 1024).toFixed(1);
  say(`package  ${name.padEnd(24)} ${megabytes(size)} MB, installed ${megabytes(unpackedSize)} MB`);
  return archive;
}

/** npm packs the rights that files have here, where they depend on whoever builds: with a umask of 077 nobody else could read them. */
function setRights(folder) {
  for (const entry of fs.readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name);
    fs.chmodSync(file, entry.isDirectory() || (fs.statSync(file).mode & 0o100) !== 0 ? 0o755 : 0o644);
  }
}

function copyFrom(from, to, names) {
  for (const name of names) {
    fs.mkdirSync(path.dirname(path.join(to, name)), { recursive: true });
    fs.cpSync(path.join(from, name), path.join(to, name), { recursive: true });
  }
}

const writeJson = (file, value) => fs.writeFileSync(file, `${JSON.stringify(value, null, 2)}\n`);

if (isStarted(import.meta.url)) {
  const { values } = parseArgs({ options: { all: { type: 'boolean' }, to: { type: 'string' } } });
  const chosen = platforms.filter(
    ({ os, cpu }) => values.all === true || (os === process.platform && cpu === process.arch),
  );
  setup();
  installConsole({ onlyToBuild: true });
  await makePackages(path.resolve(values.to ?? path.join(root, 'dist', 'packages')), chosen);
}
