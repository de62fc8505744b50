// Bundles the chosen tests, and the program that they start, into folders below dist/ that do not change: a service of this clone
// runs from another folder, and concurrent runs do not collide. A later run reuses what would come out the same.
import fs from 'node:fs';
import path from 'node:path';
import { buildFiles, buildTestedProgram, dist, filesBelow, filesRead } from './bundle.mjs';
import { consoleFolder } from './console.mjs';
import { docsFolder } from './docs-site.mjs';
import { clientPackages, clientTests } from './clients.mjs';
import { keptBuild } from './kept-builds.mjs';
import { root, say } from './setup.mjs';

/** Imported before each test. */
export const stackTraces = 'src/platform/stack-traces.ts';

const dayMs = 24 * 60 * 60 * 1000;

/**
 * Returns a folder with `program/` and the tests, laid out as in the repository; it does not change until this process ends.
 * `files`, and modules of the sources that the runner itself needs, are paths below the repository.
 */
export async function buildTests(files, modules) {
  const startedAt = Date.now();
  removeLeftovers();
  const recipe = recipeOfBuilds();
  const program = keptBuild({
    below: dist,
    kind: 'program',
    recipe,
    entries: ['program'],
    make: async (place) => {
      openToOthers(place);
      // The console and the documentation, one of each for all runs; a suite may build them only after this.
      fs.symlinkSync(consoleFolder, path.join(place, 'console'), 'junction');
      fs.symlinkSync(docsFolder, path.join(place, 'docs'), 'junction');
      return await buildTestedProgram(place);
    },
  });
  const entries = [...new Set([...files, stackTraces, ...modules, ...startedBy(files)])];
  const { folder, made } = keptBuild({
    below: dist,
    kind: 'test',
    recipe: [...recipe, program.folder],
    entries,
    make: async (place) => {
      openToOthers(place);
      fs.symlinkSync(program.folder, path.join(place, 'program'), 'junction');
      const options = { files: entries, folder: place, program: program.folder, plugins: [clientsApart] };
      const { inputs } = await buildFiles(options);
      return filesRead(Object.keys(inputs));
    },
  });
  await Promise.all([program.made, made]);
  const clients = path.join(root, clientTests, 'node_modules');
  const link = path.join(folder, 'node_modules');
  if (fs.existsSync(clients) && !fs.existsSync(link)) fs.symlinkSync(clients, link, 'junction');
  say(`build    ${files.length} test files and the program in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
  return folder;
}

/** Some tests start the program as another user. */
const openToOthers = (folder) => fs.chmodSync(folder, 0o755);

/** What determines a build besides the sources that it reads: how it is made, and what is installed. */
function recipeOfBuilds() {
  const files = [
    ...filesBelow(path.join(root, 'scripts')),
    ...['package.json', 'package-lock.json', 'tsconfig.json'].map((name) => path.join(root, name)),
    path.join(root, clientTests, 'package.json'),
  ];
  return [
    ...[root, process.version, process.platform, process.arch, process.env.CC ?? ''],
    ...files.toSorted().flatMap((file) => [file, fs.readFileSync(file, 'utf8')]),
    // Each that runs by itself is an entry of the program.
    ...filesBelow(path.join(root, 'src')).toSorted(),
  ];
}

/** What tests and their imports run in separate processes: `built('…')` (tests/support/built.ts). */
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
      // Strings in tests contain imports, too.
      if (imported.startsWith(`tests${path.sep}`) && fs.existsSync(path.join(root, imported))) known.add(imported);
    }
  }
  return [...started];
}

/** Removes folders of runs that were killed. */
function removeLeftovers() {
  fs.mkdirSync(dist, { recursive: true });
  for (const name of fs.readdirSync(dist).filter((name) => /^(run|script)-/.test(name))) {
    const folder = path.join(dist, name);
    if (Date.now() - fs.statSync(folder).mtimeMs > dayMs) fs.rmSync(folder, { recursive: true, force: true });
  }
}

/** The client libraries are loaded from where they are installed, because another release may replace them. */
const clientsApart = {
  name: 'clients-apart',
  setup(build) {
    const packages = clientPackages().join('|');
    build.onResolve({ filter: new RegExp(`^(${packages})(/|$)`) }, ({ path: name, importer }) =>
      importer.startsWith(path.join(root, clientTests)) ? { path: name, external: true } : undefined,
    );
  },
};
