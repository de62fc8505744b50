// Bundles the TypeScript with esbuild (docs/decisions/023-bundled-program.md). Types are not checked here, but by `npm run check`.
//
// The program is dist/*.js: one entry for the command, one for each thread, child and worker, and the chunks that they share. There
// is no check for an earlier build: bundling takes about as long as finding out whether it is needed.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { buildLlamaLibrary, hasLlamaLibrary, nativeSources } from './native.mjs';
import { platforms } from './package/platforms.mjs';
import { fail, root, say, setup } from './setup.mjs';
import { installAgain, slim } from './slim.mjs';

export const dist = path.join(root, 'dist');

/** They have native parts, which they search for beside themselves. */
const external = ['@node-llama-cpp/*', '@photostructure/sqlite'];

/**
 * Large libraries, loaded only by what needs them. If everything is installed, tests and scripts load them from there: reading them
 * for every build takes four times as long as all the rest. The suite `start` tests the program with them included.
 */
const large = [
  '@aws-sdk/*',
  '@better-auth/*',
  'better-auth',
  'nodemailer',
  'pdfkit',
  'pg',
  'smtp-server',
  'stripe',
  'unpdf',
];

/** CommonJS inside a bundle loads Node's own modules with `require`. */
const requireForLibraries =
  "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);";

const shared = {
  absWorkingDir: root,
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  // ECMAScript modules if a package has both: CommonJS cannot be tree-shaken, and its exports have no names in a bundle.
  mainFields: ['module', 'main'],
  chunkNames: 'chunk-[hash]',
  // Whoever starts the service parses and keeps the texts: without comments and indentation they are a third shorter, and the process,
  // whose threads keep theirs too, 15 MB smaller. Names stay: stacks and profiles show them.
  minifyWhitespace: true,
  sourcemap: 'linked',
  // Stacks name our files and lines; the text of the lines is in the repository.
  sourcesContent: false,
  banner: { js: requireForLibraries },
  external,
  logLevel: 'silent',
  metafile: true,
};

/** Separate processes, which load shared chunks when they need them. */
const processes = /^(main|serve-worker|.*-child)\.ts$/;

/**
 * What runs by itself, by file name: `src/inference/engines/llama/llama-child.ts` is the entry `llama-child`. A thread needs all of
 * its code immediately, so it is one file: finding and loading a file takes Node longer than what most of them do (the two threads
 * of the store, with what they share in 23 and 14 files: 95 and 74 ms of processor a start; as one file: 78 and 56).
 */
function programParts() {
  const files = filesBelow(path.join(root, 'src')).filter((file) => /-(child|thread|worker)\.ts$/.test(file));
  const entries = [path.join(root, 'src', 'main.ts'), ...files];
  const isProcess = (file) => processes.test(path.basename(file));
  const named = (chosen) => chosen.map((file) => ({ in: file, out: path.basename(file, '.ts') }));
  return [
    { entryPoints: named(entries.filter(isProcess)) },
    { entryPoints: named(entries.filter((file) => !isProcess(file))), splitting: false },
  ];
}

/** All entries of the program. */
export const programEntries = () => programParts().flatMap(({ entryPoints }) => entryPoints);

/** Bundles the parts of the program with these options; resolves with what was read and written. */
async function bundleProgram(options) {
  const results = [];
  // One after the other: the first that misses a package reinstalls all of them (`bundle`).
  for (const part of programParts()) results.push(await bundle({ ...part, ...options }));
  return {
    inputs: results.flatMap(({ inputs }) => Object.keys(inputs)),
    outputs: results.flatMap(({ outputs }) => Object.keys(outputs)),
  };
}

/** Builds the program into `dist`, and removes other files of an earlier build. */
export async function buildProgram() {
  const startedAt = Date.now();
  const result = await bundleProgram({ outdir: dist, plugins: [standardFonts, engineLibrary(aboveBundle)] });
  buildLlamaLibrary(dist);
  const outputs = new Set(result.outputs.map((file) => path.basename(file)));
  for (const name of fs.readdirSync(dist))
    if (/\.js(\.map)?$/.test(name) && !outputs.has(name)) fs.rmSync(path.join(dist, name));
  say(`build    ${outputs.size} files in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
  return result;
}

/** Builds the program of the npm package, without source maps, because the package has no sources. */
export const buildPackagedProgram = (folder) =>
  bundleProgram({
    outdir: folder,
    sourcemap: false,
    legalComments: 'none',
    // CommonJS in a bundle has the paths of its files: they are the same where node_modules is a link.
    preserveSymlinks: true,
    plugins: [standardFonts, platformPackages, engineLibrary(aboveBundle, engineFolder)],
  });

/**
 * Builds the program for tests, without the large libraries. Resolves with the files that it was made of, or with undefined if its
 * own library could not be compiled, because another time it might be.
 */
export async function buildTestedProgram(folder) {
  const { inputs } = await bundleProgram({
    outdir: folder,
    external: [...external, ...large],
    plugins: [engineLibrary()],
  });
  return buildLlamaLibrary(folder) || !hasLlamaLibrary ? [...filesRead(inputs), ...nativeSources()] : undefined;
}

/** Those of esbuild's inputs that are files; others come from the plugins above. */
export const filesRead = (inputs) =>
  inputs.filter((name) => !/^[\w-]+:/.test(name)).map((name) => path.join(root, name));

/**
 * Bundles files that are not the program itself: tests, benchmarks, and what scripts need of the sources. `files` are paths below
 * the repository; the outputs are below `folder` under the same names without the ending. Threads and children that they start are
 * those of `program`.
 */
export function buildFiles({ files, folder, program, plugins = [] }) {
  return bundle({
    entryPoints: files.map((file) => ({ in: path.join(root, file), out: file.replace(/\.ts$/, '') })),
    outdir: folder,
    external: [...external, ...large],
    plugins: [
      entriesOf(program),
      outside(['axe-core', 'esbuild', 'playwright-core', 'typescript']),
      engineLibrary(),
      ...plugins,
    ],
  });
}

/**
 * Builds the program as scripts that a process can run again and again, each time from nothing, with its own `require`
 * (tests/world/machine.ts). `files` are names of outputs and paths below the repository; `plugins` may change what is built.
 */
export function buildScripts({ files, folder, plugins = [] }) {
  return bundle({
    entryPoints: Object.entries(files).map(([name, file]) => ({ in: path.join(root, file), out: name })),
    outdir: folder,
    format: 'cjs',
    // A `require` is over at once, in the same order each time.
    supported: { 'dynamic-import': false },
    define: { 'import.meta.url': JSON.stringify(pathToFileURL(path.join(folder, 'program.js')).href) },
    sourcemap: false,
    splitting: false,
    banner: {},
    external: [...external, ...large],
    plugins: [...plugins, entriesOf(folder), withoutEngine, engineLibrary()],
  });
}

/** The embedded engine cannot be part of a script, and runs in a process of its own. */
const withoutEngine = {
  name: 'without-engine',
  setup(build) {
    build.onResolve({ filter: /^node-llama-cpp$/ }, ({ path: name }) => ({ path: name, namespace: 'unused' }));
  },
};

/** Imports modules of the sources for a script, which cannot import TypeScript itself. */
export async function importSources(...files) {
  fs.mkdirSync(dist, { recursive: true });
  const folder = fs.mkdtempSync(path.join(dist, 'script-'));
  try {
    await buildFiles({ files, folder, program: dist });
    return await Promise.all(
      files.map((file) => import(pathToFileURL(path.join(folder, file.replace(/\.ts$/, '.js'))).href)),
    );
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Builds the program after every change of a source, until the function that it resolves with is called. `onBuilt` receives the
 * seconds.
 */
export async function watchProgram(onBuilt) {
  const { context } = await import('esbuild');
  let startedAt = 0;
  const reported = {
    name: 'summary',
    setup(build) {
      build.onStart(() => void (startedAt = Date.now()));
      build.onEnd(async ({ errors }) => {
        if (errors.length === 0) onBuilt(((Date.now() - startedAt) / 1000).toFixed(1));
        else await report(errors);
      });
    },
  };
  const options = {
    // In one part, so that each change is one build.
    entryPoints: programEntries(),
    outdir: dist,
    external: [...external, ...large],
    plugins: [undiciParts, reported, engineLibrary()],
  };
  buildLlamaLibrary(dist);
  const watching = await context({ ...shared, ...options });
  await watching.watch();
  return () => watching.dispose();
}

/** Exits with code 1 if the sources cannot be bundled, and reports where they are wrong. */
async function bundle(options) {
  const { build } = await import('esbuild');
  try {
    const { metafile } = await build({ ...shared, ...options, plugins: [undiciParts, ...options.plugins] });
    return metafile;
  } catch (error) {
    if (error.errors === undefined) throw error;
    // The sources have changed, and need something that a slim installation has removed.
    if (error.errors.some(({ text }) => text.startsWith('Could not resolve')) && installAgain()) return bundle(options);
    await report(error.errors);
    return fail('The sources could not be bundled; see above.');
  }
}

async function report(errors) {
  const { formatMessages } = await import('esbuild');
  const color = process.stderr.isTTY;
  for (const text of await formatMessages(errors, { kind: 'error', color })) say(text.trimEnd());
}

/** Tests start the real program's threads and processes. */
const entriesOf = (program) => ({
  name: 'entries',
  setup(build) {
    const folder = JSON.stringify(`${pathToFileURL(program).href}/`);
    build.onLoad({ filter: /[\\/]src[\\/]platform[\\/]entries\.ts$/ }, () => ({
      contents: `export const entryUrl = (name) => new URL(name + '.js', ${folder});
        export const llamaLibraryUrl = () => new URL('llama-library-' + process.platform + '-' + process.arch + '.node', ${folder});
        export const consoleUrl = () => new URL('console/', ${folder});
        export const docsUrl = () => new URL('docs/', ${folder});`,
    }));
  },
});

const engineModules = 'node_modules/node-llama-cpp';

/** The folder in the npm package for node-llama-cpp's data files. */
export const engineFolder = 'engine';

/** The program may be moved together with its installed packages; tests and scripts are built where they run. */
const aboveBundle = "new URL('../', import.meta.url)";

/**
 * node-llama-cpp finds its binaries relative to its own files, so each file is given that place below the repository. It tries a
 * binary in another process first, which takes half a second of every start; that is left out, since the engine's process may
 * crash: its owner reports why and restarts it. The package's code for downloading and cloning is never used here.
 */
const engineLibrary = (above = JSON.stringify(`${pathToFileURL(root).href}/`), folder = engineModules) => ({
  name: 'engine-library',
  setup(build) {
    build.onLoad({ filter: /[\\/]node-llama-cpp[\\/]dist[\\/].*\.js$/ }, ({ path: file }) => {
      if (path.basename(file) === 'testBindingBinary.js')
        return { contents: 'export const testBindingBinary = async () => true;' };
      const text = fs.readFileSync(file, 'utf8');
      if (!text.includes('import.meta.url')) return undefined;
      const within = path.relative(path.join(root, engineModules), file).replaceAll(path.sep, '/');
      const here = `new URL(${JSON.stringify(`${folder}/${within}`)}, ${above}).href`;
      return { contents: text.replaceAll('import.meta.url', here) };
    });
    build.onResolve({ filter: /^(ipull|simple-git)$/ }, ({ path: name }) => ({ path: name, namespace: 'unused' }));
    build.onLoad({ filter: /.*/, namespace: 'unused' }, () => ({ contents: 'module.exports = {};' }));
  },
});

/** In the npm package the native parts come from one package for each platform instead of the libraries. */
const platformPackages = {
  name: 'platform-packages',
  setup(build) {
    const packageOf = new Map(platforms.map(({ name, engine }) => [engine, name]));
    build.onResolve({ filter: /^@node-llama-cpp\// }, ({ path: name }) => ({
      path: packageOf.get(name) ?? name,
      external: true,
    }));
    const sqlite = path.join(root, 'node_modules', '@photostructure', 'sqlite', 'dist', 'index.mjs');
    build.onResolve({ filter: /^@photostructure\/sqlite$/ }, () => ({ path: sqlite }));
    build.onLoad({ filter: /[\\/]sqlite[\\/]dist[\\/]index\.mjs$/ }, ({ path: file }) => {
      const text = fs.readFileSync(file, 'utf8');
      const beside = 'join(_dirname(), "..")';
      if (!text.includes(beside)) throw new Error(`${file} looks for its binary in another way than it did`);
      const here = 'require(`@tokenhouse/${process.platform}-${process.arch}`).sqliteFolder';
      return { contents: text.replace(beside, here) };
    });
  },
};

/**
 * undici's index loads its fetch, caches, cookies, web sockets and mocks as well: 50 ms of every start. The sources use these four.
 */
const undiciParts = {
  name: 'undici-parts',
  setup(build) {
    const ofSources = path.join(root, 'src') + path.sep;
    build.onResolve({ filter: /^undici$/ }, ({ importer }) =>
      importer.startsWith(ofSources) ? { path: 'undici', namespace: 'parts' } : undefined,
    );
    build.onLoad({ filter: /.*/, namespace: 'parts' }, () => ({
      resolveDir: root,
      contents: `
        Object.assign(require('undici/lib/dispatcher/dispatcher').prototype, require('undici/lib/api'));
        export const Agent = require('undici/lib/dispatcher/agent');
        export const Client = require('undici/lib/dispatcher/client');
        export const EnvHttpProxyAgent = require('undici/lib/dispatcher/env-http-proxy-agent');
        export const Pool = require('undici/lib/dispatcher/pool');`,
    }));
  },
};

/** pdfkit loads its fonts with a `require` that it creates, which no bundler sees. */
const standardFonts = {
  name: 'standard-fonts',
  setup(build) {
    build.onLoad({ filter: /[\\/]pdfkit\.node\.mjs$/ }, ({ path: file }) => ({
      contents: fs.readFileSync(file, 'utf8').replaceAll("require$1('#standard-fonts/", "require('#standard-fonts/"),
    }));
  },
};

/** Packages of the repository that are not bundled, wherever the importing file ends up. */
const outside = (names) => ({
  name: 'outside',
  setup(build) {
    build.onResolve(
      { filter: new RegExp(`^(${names.join('|')})$`) },
      async ({ path: name, resolveDir, pluginData }) => {
        if (pluginData === 'outside') return undefined;
        const found = await build.resolve(name, { resolveDir, kind: 'import-statement', pluginData: 'outside' });
        return { path: pathToFileURL(found.path).href, external: true };
      },
    );
  },
});

/** Lists files, except what is installed or linked there. */
export function filesBelow(folder) {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : filesBelow(file);
    return entry.isFile() ? [file] : [];
  });
}

/** What the bundle and the builds load from the installation: packages with their dependencies, and folders of packages that are read. */
const loaded = {
  packages: ['@photostructure/sqlite', 'esbuild', 'marked', /^@node-llama-cpp\//],
  folders: ['node-llama-cpp'],
};

/** Installs what the program needs, and nothing else, for `npm start` and `npm run build`. */
export async function setUpProgram() {
  setup({ onlyToRun: true });
  const { inputs } = await buildProgram();
  slim(inputs, loaded);
}
