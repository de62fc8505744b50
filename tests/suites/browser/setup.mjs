// A real browser: an installed Chromium or Chrome, else Debian's package with what it needs, unpacked beside the other
// fetched tools; and its headless shell, for most of the tests. Needs no root, and installs nothing.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { buildConsole } from '../../../scripts/console.mjs';
import { areDocsStale, buildDocs } from '../../../scripts/docs-site.mjs';

const remedy =
  'Debian: apt-get update && apt-get install chromium fonts-dejavu-core. Elsewhere install Chromium or Chrome, and set TOKENHOUSE_TEST_CHROMIUM to its program';

export async function setup() {
  await buildConsole();
  if (areDocsStale()) await buildDocs();
  const chromium = chromiumProgram();
  return { TOKENHOUSE_TEST_CHROMIUM: chromium, TOKENHOUSE_TEST_HEADLESS_SHELL: headlessShellOf(chromium) };
}

/** The one that the environment names, else an installed one, else the unpacked one. */
export function chromiumProgram() {
  const { TOKENHOUSE_TEST_CHROMIUM: named } = process.env;
  return (
    named ?? installed('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable') ?? unpackedChromium()
  );
}

function installed(...names) {
  const { PATH = '' } = process.env;
  return names
    .flatMap((name) => PATH.split(path.delimiter).map((folder) => path.join(folder, name)))
    .find((file) => fs.existsSync(file));
}

const shellName = 'chromium-headless-shell';

/**
 * Chromium without the layer that draws its window, which is built from the same sources, and spares a fifth of the processors. Where
 * there is none of the unpacked Chromium's version, it is that itself, as where Chromium is installed or named.
 */
function headlessShellOf(chromium) {
  const folder = cacheFolder('chromium');
  if (chromium !== starterIn(folder)) return chromium;
  const starter = `${chromium}-${shellName}`;
  if (fs.existsSync(starter)) return starter;
  const { stdout } = spawnSync(chromium, ['--version', '--no-sandbox'], { encoding: 'utf8' });
  const [version] = /\d+(\.\d+)+/.exec(stdout ?? '') ?? [];
  if (version === undefined || !unpack(folder, [`${shellName}=${version}*`])) return chromium;
  const started = fs.readFileSync(chromium, 'utf8');
  writeStarter(starter, started.replace(chromiumIn(folder), path.join(path.dirname(chromiumIn(folder)), shellName)));
  return starter;
}

const starterIn = (folder) => path.join(folder, 'start');
const chromiumIn = (folder) => path.join(folder, 'root', 'usr/lib/chromium/chromium');

/** The program of Debian's package, started with the libraries and fonts that were unpacked with it. */
function unpackedChromium() {
  const folder = cacheFolder('chromium');
  const starter = starterIn(folder);
  if (fs.existsSync(starter)) return starter;
  if (process.platform !== 'linux') throw new Error(`there is no Chromium. ${remedy}`);
  // What is missing on this computer, libraries of libraries too.
  let missing = missingPackages();
  if (missing.length === 0) {
    spawnSync('apt-get', ['update'], { stdio: ['ignore', 2, 2] });
    missing = missingPackages();
  }
  if (missing.length === 0) throw new Error(`there is no Chromium. ${remedy}`);
  process.stderr.write(`fetch    Chromium: ${missing.length} packages of Debian, once\n`);
  const root = path.join(folder, 'root');
  fs.rmSync(root, { recursive: true, force: true });
  const program = chromiumIn(folder);
  if (!unpack(folder, missing) || !fs.existsSync(program)) throw new Error(`Chromium could not be fetched. ${remedy}`);
  const fonts = path.join(folder, 'fonts.conf');
  const families = ['serif', 'sans-serif', 'monospace', 'system-ui'].map(
    (name) =>
      `<alias><family>${name}</family><prefer><family>DejaVu Sans${name === 'monospace' ? ' Mono' : ''}</family></prefer></alias>`,
  );
  fs.writeFileSync(
    fonts,
    `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd"><fontconfig><dir>${root}/usr/share/fonts</dir><dir>/usr/share/fonts</dir><cachedir>${folder}/fonts</cachedir>${families.join('')}</fontconfig>`,
  );
  const libraries = librariesBelow(root).join(':');
  writeStarter(
    starter,
    `#!/bin/sh\nFONTCONFIG_FILE='${fonts}' LD_LIBRARY_PATH='${libraries}' exec '${program}' "$@"\n`,
  );
  return starter;
}

/** Written last: where it is, everything is. */
function writeStarter(file, text) {
  fs.writeFileSync(`${file}.new`, text, { mode: 0o755 });
  fs.renameSync(`${file}.new`, file);
}

/** Packages of Debian, by name or by name and version, into the folder's `root`. Whether all came. */
function unpack(folder, packages) {
  const archives = path.join(folder, 'archives');
  const root = path.join(folder, 'root');
  fs.rmSync(archives, { recursive: true, force: true });
  for (const place of [archives, root]) fs.mkdirSync(place, { recursive: true });
  const fetched = spawnSync('apt-get', ['download', ...packages], { cwd: archives, stdio: ['ignore', 2, 2] });
  const names = fs.readdirSync(archives);
  const unpacked = names.map((name) =>
    spawnSync('dpkg', ['-x', path.join(archives, name), root], { stdio: ['ignore', 2, 2] }),
  );
  fs.rmSync(archives, { recursive: true });
  return fetched.status === 0 && names.length > 0 && unpacked.every(({ status }) => status === 0);
}

function missingPackages() {
  const input = ['install', '--simulate', '--no-install-recommends', 'chromium', 'fonts-dejavu-core'];
  const { stdout } = spawnSync('apt-get', input, { encoding: 'utf8' });
  return [...(stdout ?? '').matchAll(/^Inst (\S+)/gm)].map(([, name]) => name);
}

/** `usr/lib/x86_64-linux-gnu` and the folders in it that libraries lie in. */
function librariesBelow(root) {
  const files = fs.readdirSync(root, { recursive: true }).filter((file) => /^(usr\/)?lib\/.*\.so(\.\d+)*$/.test(file));
  return [...new Set(files.map((file) => path.join(root, path.dirname(file))))];
}
