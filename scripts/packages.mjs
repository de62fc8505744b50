// `npm run packages -- FOLDER`: the packages for the npm registry, each in a folder below FOLDER and beside it as the archive that
// would be published. `tokenhouse` is the bundled program; `@tokenhouse/<platform>` has the native code for one platform, and is an
// optional dependency of it, so that each computer fetches its own alone. Nothing runs at their installation.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { buildPackagedProgram, platformPackage, platforms } from './build.mjs';
import { fail, isStarted, readJson, root, runNpm, say, setup } from './setup.mjs';
import { installAgain } from './slim.mjs';

const about = readJson(path.join(root, 'package.json'));
const inModules = (...names) => path.join(root, 'node_modules', ...names);

/**
 * Makes the packages of the program and of these platforms; resolves with the archives by the names of the packages. The program
 * always names all platforms.
 */
export async function makePackages(folder, chosen = Object.keys(platforms)) {
  fs.mkdirSync(folder, { recursive: true });
  const folders = [await programPackage(path.join(folder, 'tokenhouse'))];
  for (const platform of chosen) folders.push(nativePackageOf(platform, path.join(folder, platform)));
  return Object.fromEntries(
    folders.map((made) => [readJson(path.join(made, 'package.json')).name, archiveOf(made, folder)]),
  );
}

/** The program, with the launcher that a clone has too. */
async function programPackage(folder) {
  fs.rmSync(folder, { recursive: true, force: true });
  const { inputs } = await buildPackagedProgram(path.join(folder, 'dist'));
  for (const file of ['bin/tokenhouse.mjs', 'scripts/launch.mjs', 'scripts/setup.mjs', 'LICENSE'])
    copy(path.join(root, file), path.join(folder, file));
  // What the bundle reads of its engine's library: versions, and how its binaries were built.
  for (const file of ['package.json', 'LICENSE', 'llama/binariesGithubRelease.json', 'llama/llama.cpp.info.json'])
    copy(inModules('node-llama-cpp', file), path.join(folder, 'vendor', 'node-llama-cpp', file));
  const console = path.join(root, 'dist', 'console');
  if (fs.existsSync(console)) copy(console, path.join(folder, 'dist', 'console'));
  fs.writeFileSync(path.join(folder, 'THIRD-PARTY-LICENSES.txt'), licensesOf(inputs));
  fs.writeFileSync(path.join(folder, 'README.md'), readme);
  const { name, version, description, license, type, bin, engines, repository } = about;
  const optionalDependencies = Object.fromEntries(Object.keys(platforms).map((one) => [platformPackage(one), version]));
  writeJson(path.join(folder, 'package.json'), {
    ...{ name, version, description, license, type, bin, engines, repository, optionalDependencies },
    files: ['bin', 'dist', 'scripts', 'vendor', 'THIRD-PARTY-LICENSES.txt'],
  });
  return folder;
}

const readme = `# Tokenhouse

${about.description}

    npx tokenhouse

starts it: a real model behind the OpenAI and Anthropic APIs, with keys, prices and a ledger. The data are in the folder where it is
started if there is a \`tokenhouse.yaml\` or \`data/\`, else in the data folder of this user. \`npx tokenhouse --help\` lists the commands.
`;

/** The native code of a platform: the engine's package as it is, and SQLite's binary. */
function nativePackageOf(platform, folder) {
  fs.rmSync(folder, { recursive: true, force: true });
  const engine = path.join(folder, 'engine');
  copy(enginePackage(platforms[platform]), engine);
  copy(
    inModules('@photostructure', 'sqlite', 'prebuilds', platform, '@photostructure+sqlite.glibc.node'),
    path.join(folder, 'sqlite.node'),
  );
  copy(inModules('@photostructure', 'sqlite', 'LICENSE'), path.join(folder, 'LICENSE-sqlite'));
  const [system, processor] = platform.split('-');
  const { version, license, engines, repository } = about;
  writeJson(path.join(folder, 'package.json'), {
    ...{ name: platformPackage(platform), version, license, engines, repository },
    description: `Native code of Tokenhouse for ${platform}: llama.cpp and SQLite`,
    os: [system],
    cpu: [processor],
    ...(system === 'linux' ? { libc: ['glibc'] } : {}),
    exports: { './engine': './engine/dist/index.js', './sqlite.node': './sqlite.node' },
    preferUnplugged: true,
  });
  return folder;
}

/** The folder of an engine's package: the installed one, else the locked one from the registry, checked by its hash. */
function enginePackage(name) {
  const full = `@node-llama-cpp/${name}`;
  const installed = inModules(full);
  if (fs.existsSync(path.join(installed, 'bins'))) return installed;
  const { version, integrity } = readJson(path.join(root, 'package-lock.json')).packages[`node_modules/${full}`];
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-engine-'));
  const packed = runNpm(['pack', `${full}@${version}`, '--json', '--loglevel=error'], { cwd: folder, capture: true });
  if (packed.status !== 0) fail(`${full} could not be fetched; check the network and the npm registry`);
  const archive = path.join(folder, JSON.parse(packed.stdout.toString())[0].filename);
  if (integrityOf(archive) !== integrity) fail(`${full} ${version} is not what package-lock.json says`);
  unpack(archive, folder);
  return path.join(folder, 'package');
}

function unpack(archive, folder) {
  const { status } = spawnSync('tar', ['-xzf', archive, '-C', folder], { stdio: ['ignore', 2, 2] });
  if (status !== 0) fail(`${archive} could not be unpacked`);
}

export const integrityOf = (archive) =>
  `sha512-${createHash('sha512').update(fs.readFileSync(archive)).digest('base64')}`;

/** What `npm publish` would send. */
function archiveOf(folder, target) {
  const { status, stdout } = runNpm(['pack', folder, '--pack-destination', target, '--json', '--loglevel=error'], {
    capture: true,
  });
  if (status !== 0) fail(`${folder} could not be packed`);
  const [{ name, filename, size, unpackedSize }] = JSON.parse(stdout.toString());
  say(`package  ${name}: ${megabytes(size)} to fetch, ${megabytes(unpackedSize)} on disk`);
  return path.join(target, path.basename(filename.replace('@', '').replace('/', '-')));
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

/** The licences of the packages that the bundle was made of. */
function licensesOf(inputs) {
  const folders = new Set(inputs.flatMap((file) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []));
  return [...folders]
    .toSorted()
    .map((folder) => {
      const { name, version, license } = readJson(path.join(root, folder, 'package.json')) ?? {};
      const texts = fs
        .readdirSync(path.join(root, folder))
        .filter((file) => /^(licen[cs]e|notice|copying)/i.test(file))
        .map((file) => fs.readFileSync(path.join(root, folder, file), 'utf8').trim());
      return [`${name} ${version} (${license})`, ...texts].join('\n\n');
    })
    .join(`\n\n${'-'.repeat(80)}\n\n`);
}

function copy(from, to) {
  fs.mkdirSync(path.dirname(to), { recursive: true });
  fs.cpSync(from, to, { recursive: true, dereference: true });
}

const writeJson = (file, value) => fs.writeFileSync(file, `${JSON.stringify(value, null, 2)}\n`);

/** The program with its native code in one folder, for an image or a package of a distribution. */
export async function wholeProgram(folder, platform = `${process.platform}-${process.arch}`) {
  await programPackage(folder);
  nativePackageOf(platform, path.join(folder, 'node_modules', platformPackage(platform)));
}

if (isStarted(import.meta.url)) {
  const args = process.argv.slice(2);
  const isWhole = args[0] === '--whole';
  const [folder, ...chosen] = isWhole ? args.slice(1) : args;
  const unknown = chosen.find((one) => !Object.hasOwn(platforms, one));
  if (folder === undefined || unknown !== undefined || (isWhole && chosen.length > 1))
    fail(`usage: npm run packages -- [--whole] FOLDER [PLATFORM…], of: ${Object.keys(platforms).join(', ')}`);
  if (!installAgain()) setup({ onlyToRun: true });
  if (isWhole) await wholeProgram(path.resolve(folder), chosen[0]);
  else await makePackages(path.resolve(folder), chosen.length === 0 ? undefined : chosen);
}
