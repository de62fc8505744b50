// Bundles the chosen tests, and the program that they start, into a folder of one run below dist/: what a service of this
// clone is running from stays as it is, and two runs at once do not meet.
import fs from 'node:fs';
import path from 'node:path';
import { buildFiles, buildTestedProgram, dist } from './build.mjs';
import { consoleFolder } from './console.mjs';
import { clientPackages, clientTests } from './clients.mjs';
import { root, say } from './setup.mjs';

/** Imported before each test. */
export const stackTraces = 'src/platform/stack-traces.ts';

const dayMs = 24 * 60 * 60 * 1000;

/** The folder with `program/`, and the tests as they lie in the repository. The caller removes it. */
export async function buildTests(files) {
  const startedAt = Date.now();
  fs.mkdirSync(dist, { recursive: true });
  removeLeftovers();
  const folder = fs.mkdtempSync(path.join(dist, 'test-'));
  // Some tests start the program as another user.
  fs.chmodSync(folder, 0o755);
  const program = path.join(folder, 'program');
  const clients = path.join(root, clientTests, 'node_modules');
  if (fs.existsSync(clients)) fs.symlinkSync(clients, path.join(folder, 'node_modules'), 'junction');
  // The console, one for all runs; a suite may build it only after this.
  fs.mkdirSync(program);
  fs.symlinkSync(consoleFolder, path.join(program, 'console'), 'junction');
  await Promise.all([
    buildTestedProgram(program),
    buildFiles({ files: [...files, stackTraces, ...startedBy(files)], folder, program, plugins: [clientsApart] }),
  ]);
  say(`build    ${files.length} test files and the program in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
  return folder;
}

/** What tests, and what they import, run in processes of their own: `built('…')` (tests/support/built.ts). */
function startedBy(files) {
  const started = new Set();
  const known = new Set(files);
  for (const file of known) {
    const text = fs.readFileSync(path.join(root, file), 'utf8');
    for (const [, found] of text.matchAll(/\bbuilt\('([^']+)'\)/g)) {
      started.add(found);
      known.add(path.normalize(found));
    }
    for (const [, specifier] of text.matchAll(/\b(?:from|import) ?\(?'(\.[^']+\.ts)'/g)) {
      const imported = path.join(path.dirname(file), specifier);
      // Texts of tests have imports, too.
      if (imported.startsWith(`tests${path.sep}`) && fs.existsSync(path.join(root, imported))) known.add(imported);
    }
  }
  return [...started];
}

/** Of runs that were killed. */
function removeLeftovers() {
  for (const name of fs.readdirSync(dist).filter((name) => /^(run|script|test)-/.test(name))) {
    const folder = path.join(dist, name);
    if (Date.now() - fs.statSync(folder).mtimeMs > dayMs) fs.rmSync(folder, { recursive: true, force: true });
  }
}

/** The client libraries are loaded as they are installed: in their place another release may stand. */
const clientsApart = {
  name: 'clients-apart',
  setup(build) {
    const packages = clientPackages().join('|');
    build.onResolve({ filter: new RegExp(`^(${packages})(/|$)`) }, ({ path: name, importer }) =>
      importer.startsWith(path.join(root, clientTests)) ? { path: name, external: true } : undefined,
    );
  },
};
