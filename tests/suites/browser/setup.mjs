// A real browser: an installed Chromium or Chrome, else Debian's package with what it needs, unpacked beside the other
// fetched tools. Needs no root, and installs nothing.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { buildConsole } from '../../../scripts/console.mjs';

const remedy =
  'Debian: apt-get update && apt-get install chromium fonts-dejavu-core. Elsewhere install Chromium or Chrome, and set TOKENHOUSE_TEST_CHROMIUM to its program';

export async function setup() {
  await buildConsole();
  return { TOKENHOUSE_TEST_CHROMIUM: chromiumProgram() };
}

/** The one that the environment names, else an installed one, else the unpacked one. */
export function chromiumProgram() {
  const { TOKENHOUSE_TEST_CHROMIUM: named, PATH = '' } = process.env;
  if (named !== undefined) return named;
  const found = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']
    .flatMap((name) => PATH.split(path.delimiter).map((folder) => path.join(folder, name)))
    .find((file) => fs.existsSync(file));
  return found ?? unpackedChromium();
}

/** The program of Debian's package, started with the libraries and fonts that were unpacked with it. */
function unpackedChromium() {
  const folder = cacheFolder('chromium');
  const starter = path.join(folder, 'start');
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
  const archives = path.join(folder, 'archives');
  const root = path.join(folder, 'root');
  for (const place of [archives, root]) {
    fs.rmSync(place, { recursive: true, force: true });
    fs.mkdirSync(place, { recursive: true });
  }
  const fetched = spawnSync('apt-get', ['download', ...missing], { cwd: archives, stdio: ['ignore', 2, 2] });
  if (fetched.status !== 0) throw new Error(`Chromium could not be fetched. ${remedy}`);
  for (const name of fs.readdirSync(archives))
    spawnSync('dpkg', ['-x', path.join(archives, name), root], { stdio: ['ignore', 2, 2] });
  fs.rmSync(archives, { recursive: true });
  const program = path.join(root, 'usr/lib/chromium/chromium');
  if (!fs.existsSync(program)) throw new Error(`there is no Chromium in what was fetched. ${remedy}`);
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
  // Written last: where it is, everything is.
  fs.writeFileSync(
    `${starter}.new`,
    `#!/bin/sh\nFONTCONFIG_FILE='${fonts}' LD_LIBRARY_PATH='${libraries}' exec '${program}' "$@"\n`,
    { mode: 0o755 },
  );
  fs.renameSync(`${starter}.new`, starter);
  return starter;
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
