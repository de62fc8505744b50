// Builds the web console (web/) into dist/console, from which the account host serves it (docs/decisions/028-console.md).
//
//   node scripts/console.mjs    when its sources differ from those of the existing build
//
// All assets have their hash in their name and are stored compressed; manifest.json, which is written last, lists them.
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import zlib from 'node:zlib';
import { installLocked, isStarted, readJson, root, say, stampFileIn } from './setup.mjs';

export const web = path.join(root, 'web');
/** The folder that the account host serves. */
export const consoleFolder = path.join(root, 'dist', 'console');
const manifestFile = path.join(consoleFolder, 'manifest.json');
/** Says why there is no console; with it, the account host no longer says that one is being built. */
const problemFile = path.join(consoleFolder, 'problem.txt');

const languages = ['en', 'de', 'zh'];

export const areas = () =>
  fs
    .readdirSync(path.join(web, 'src', 'pages'), { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && fs.existsSync(path.join(web, 'src', 'pages', entry.name, 'area.tsx')))
    .map(({ name }) => name)
    .toSorted();

/** Builds the console if necessary; returns whether it did. Throws with a message. */
export async function buildConsole() {
  const sources = sourcesToBuild();
  if (sources === undefined) return false;
  announce();
  try {
    await installConsole({ onlyToBuild: true });
    const startedAt = Date.now();
    const files = await bundle();
    await write(files, sources);
    const bytes = files.reduce((sum, file) => sum + file.text.length, 0);
    say(
      `console  ${files.length} files, ${Math.ceil(bytes / 1024)} kB, in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`,
    );
  } catch (error) {
    fs.writeFileSync(problemFile, error.message);
    throw error;
  }
  removeWhatOnlyBuilds();
  return true;
}

/** The hash of the sources; undefined if the existing build was made from them, or this copy has no sources. */
function sourcesToBuild() {
  if (!fs.existsSync(path.join(web, 'src'))) return undefined;
  const sources = hashOfSources();
  return readJson(manifestFile)?.sources === sources ? undefined : sources;
}

/** Creates the folder, from which the account host knows that a console is being built. */
function announce() {
  fs.mkdirSync(consoleFolder, { recursive: true });
  fs.rmSync(problemFile, { force: true });
}

/** For command line use: reports why it cannot build, and the process ends with 1. Returns whether it built. */
export async function buildConsoleOrSay() {
  try {
    return await buildConsole();
  } catch (error) {
    say(`console  not built: ${error.message}`);
    process.exitCode = 1;
    return false;
  }
}

/** Returns whether there is something to build; if so, the account host now says that it is being built. */
export function announceConsole() {
  const isStale = sourcesToBuild() !== undefined;
  if (isStale) announce();
  return isStale;
}

/** Installs the packages of web/: a build needs those that the console is made of, a check of its types also those for development. */
export function installConsole({ onlyToBuild = false } = {}) {
  installLocked(web, {
    what: onlyToBuild ? 'what the console is made of' : 'the packages of the console, with those for development',
    failed: 'The packages of the console (web/) could not be installed',
    onlyToRun: onlyToBuild,
    onFailure: (words) => {
      throw new Error(words);
    },
  });
}

/** Removes the packages in a clone that only runs, where they are no longer needed. */
function removeWhatOnlyBuilds() {
  const stamp = readJson(stampFileIn(path.join(root, 'node_modules')));
  if (stamp === undefined || stamp.everything || !stamp.isOwn) return;
  fs.rmSync(path.join(web, 'node_modules'), { recursive: true, force: true });
}

/** A hash of everything that determines the build. */
function hashOfSources() {
  const hash = createHash('sha256');
  const files = [
    ...filesBelow(path.join(web, 'src')),
    ...['index.html', 'package-lock.json'].map((name) => path.join(web, name)),
  ];
  for (const file of [...files, path.join(root, 'scripts', 'console.mjs')].toSorted())
    hash
      .update(`${path.relative(root, file)}\0`)
      .update(fs.readFileSync(file))
      .update('\0');
  return hash.digest('hex');
}

const filesBelow = (folder) =>
  fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) return filesBelow(file);
    return file === apiTypes ? [] : [file];
  });

/** Types of the account API, which are made from its document for the type check and are not part of a build. */
export const apiTypes = path.join(web, 'src', 'api', 'schema.ts');

/** Builds the console after every change of its sources, until the function that it resolves with is called. */
export async function watchConsole() {
  if (!fs.existsSync(path.join(web, 'src'))) return () => {};
  const built = () => buildConsole().catch(({ message }) => say(`console  ${message}`));
  let timer;
  let running = built();
  const watcher = fs.watch(path.join(web, 'src'), { recursive: true }, () => {
    clearTimeout(timer);
    // Editors write a file in several steps, and several files together. One build at a time.
    timer = setTimeout(() => (running = running.then(built)), 100);
  });
  return async () => {
    clearTimeout(timer);
    watcher.close();
    await running;
  };
}

/** Options of esbuild. */
function bundleOptions() {
  return {
    absWorkingDir: web,
    entryPoints: [{ in: 'src/main.tsx', out: 'console' }],
    outdir: path.join(consoleFolder, 'assets'),
    bundle: true,
    preserveSymlinks: true,
    splitting: true,
    format: 'esm',
    platform: 'browser',
    target: ['es2022', 'chrome123', 'firefox121', 'safari17.5'],
    jsx: 'automatic',
    minify: true,
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    assetNames: '[name]-[hash]',
    loader: { '.svg': 'file', '.module.css': 'local-css' },
    define: { 'process.env.NODE_ENV': '"production"' },
    legalComments: 'inline',
    metafile: true,
    write: false,
    logLevel: 'silent',
    plugins: [areasOf, markedStyles],
  };
}

/** `virtual:areas` is every `src/pages/<area>/area.tsx`, with the catalogues beside it, so that adding a page changes no shared file. */
const areasOf = {
  name: 'areas',
  setup(build) {
    build.onResolve({ filter: /^virtual:areas$/ }, () => ({ path: 'areas', namespace: 'areas' }));
    build.onLoad({ filter: /.*/, namespace: 'areas' }, () => {
      const names = areas();
      const catalogue = (name, folder) =>
        `${JSON.stringify(name)}: {${languages.map((language) => `${language}: () => import('./src/${folder}/messages/${language}.ts')`).join(', ')}}`;
      return {
        resolveDir: web,
        loader: 'js',
        contents: [
          ...names.map((name, at) => `import { area as area${at} } from './src/pages/${name}/area.tsx';`),
          `export const areas = [${names.map((_, at) => `area${at}`).join(', ')}];`,
          `export const catalogues = {${[catalogue('app', 'app'), ...names.map((name) => catalogue(name, `pages/${name}`))].join(',\n')}};`,
        ].join('\n'),
        watchFiles: names.map((name) => path.join(web, 'src', 'pages', name, 'area.tsx')),
        watchDirs: [path.join(web, 'src', 'pages')],
      };
    });
  },
};

/** Each style file begins with its name, by which the files are later sorted into sheets. */
const markedStyles = {
  name: 'marked-styles',
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, ({ path: file }) => ({
      contents: `/*! ${path.relative(web, file).replaceAll(path.sep, '/')} */\n${fs.readFileSync(file, 'utf8')}`,
      loader: file.endsWith('.module.css') ? 'local-css' : 'css',
    }));
  },
};

/** Everything that is served, as `{ name, text }`; the index last. */
async function bundle() {
  // Imported here, because in a fresh clone the packages have only just been installed.
  const { build, formatMessages: format } = await import('esbuild');
  let result;
  try {
    result = await build(bundleOptions());
  } catch (error) {
    if (error.errors === undefined) throw error;
    const lines = await format(error.errors, { kind: 'error', color: false });
    throw new Error(`The console could not be bundled:\n${lines.join('').trimEnd()}`, { cause: error });
  }
  return assemble(result);
}

/**
 * esbuild gives each lazily loaded page a sheet with all styles below it, repeating those of shared components. Here each style
 * file is in one sheet: those of an area in the area's sheet, all others in the first one.
 */
function assemble({ outputFiles, metafile }) {
  const files = [];
  const sections = new Map();
  for (const { path: file, contents } of outputFiles) {
    if (!file.endsWith('.css')) {
      files.push({ name: `assets/${path.basename(file)}`, text: Buffer.from(contents) });
      continue;
    }
    for (const section of Buffer.from(contents)
      .toString()
      .split(/(?=\/\*! src\/)/)) {
      const name = /^\/\*! (\S+) \*\//.exec(section)?.[1];
      if (name !== undefined) sections.set(name, section.slice(section.indexOf('*/') + 2).trim());
    }
  }
  const sheets = new Map([['console', '']]);
  for (const [name, text] of [...sections].toSorted(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : 1))) {
    const sheet = /^src\/pages\/([^/]+)\//.exec(name)?.[1] ?? 'console';
    sheets.set(sheet, `${sheets.get(sheet) ?? ''}${text}\n`);
  }
  const styles = new Map();
  for (const [sheet, text] of sheets) {
    const name = `assets/${sheet}-${createHash('sha256').update(text).digest('hex').slice(0, 8).toUpperCase()}.css`;
    styles.set(sheet, name);
    files.push({ name, text: Buffer.from(text) });
  }
  const entry = Object.entries(metafile.outputs).find(([, { entryPoint }]) => entryPoint === 'src/main.tsx');
  const script = `assets/${path.basename(entry[0])}`;
  const statics = entry[1].imports
    .filter(({ kind }) => kind === 'import-statement')
    .map(({ path: file }) => path.basename(file));
  const head = [
    `<link rel="stylesheet" href="/${styles.get('console')}">`,
    ...[...styles]
      .filter(([sheet]) => sheet !== 'console')
      .map(([sheet, name]) => `<link rel="stylesheet" href="/${name}" data-area="${sheet}" disabled>`),
    ...statics.map((name) => `<link rel="modulepreload" href="/assets/${name}">`),
    `<script type="module" src="/${script}"></script>`,
  ];
  const icon = hashed('icon', fs.readFileSync(path.join(web, 'src', 'icon.svg')), '.svg');
  files.push(icon);
  const index = fs
    .readFileSync(path.join(web, 'index.html'), 'utf8')
    .replace('<!-- icon -->', `<link rel="icon" type="image/svg+xml" href="/${icon.name}">`)
    .replace('<!-- assets -->', head.join('\n    '));
  return [...files, { name: 'index.html', text: Buffer.from(index) }];
}

const hashed = (name, text, ending) => ({
  name: `assets/${name}-${createHash('sha256').update(text).digest('hex').slice(0, 8).toUpperCase()}${ending}`,
  text,
});

/** Tokens first, then base styles, then components, so that a page can override them all. */
const rank = (name) =>
  name.endsWith('tokens.css') ? 0 : name.endsWith('base.css') ? 1 : name.includes('/components/') ? 2 : 3;

const types = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Paths with a page, as in the areas' routes: `/keys/$id`. No other path is the console's. */
const pagesOf = () =>
  areas().flatMap((name) => {
    const files = ['area.tsx', 'routes.ts'].map((file) => path.join(web, 'src', 'pages', name, file));
    const text = files.map((file) => (fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : '')).join('\n');
    return [...text.matchAll(/^\s*path: '(\/[^']*)',$/gm)].map(([, page]) => page);
  });

/** The files of the previous build stay for one more build, because open pages still load them. */
async function write(files, sources) {
  const earlier = readJson(manifestFile)?.files ?? {};
  fs.mkdirSync(path.join(consoleFolder, 'assets'), { recursive: true });
  // In the order of the files, whichever is compressed first: the same sources give the same bytes.
  const listed = Object.fromEntries(files.map(({ name }) => [name, undefined]));
  await Promise.all(
    files.map(async ({ name, text }) => {
      const [br, gz] = await Promise.all([brotli(text), gzip(text, { level: 9 })]);
      for (const [ending, content] of [
        ['', text],
        ['.br', br],
        ['.gz', gz],
      ])
        await put(name + ending, content);
      listed[name] = { type: types[path.extname(name)], bytes: text.length, br: br.length, gz: gz.length };
    }),
  );
  await put('manifest.json', Buffer.from(JSON.stringify({ sources, pages: pagesOf(), files: listed })));
  const kept = new Set(
    [...Object.keys(earlier), ...Object.keys(listed)].flatMap((name) => [name, `${name}.br`, `${name}.gz`]),
  );
  for (const name of fs.readdirSync(path.join(consoleFolder, 'assets')))
    if (!kept.has(`assets/${name}`)) fs.rmSync(path.join(consoleFolder, 'assets', name));
}

const brotli = (text) =>
  promisify(zlib.brotliCompress)(text, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 11 } });
const gzip = promisify(zlib.gzip);

/** Writes atomically, because the file may be read meanwhile. */
async function put(name, content) {
  const file = path.join(consoleFolder, name);
  await fs.promises.writeFile(`${file}.new`, content);
  await fs.promises.rename(`${file}.new`, file);
}

if (isStarted(import.meta.url)) {
  const isBuilt = await buildConsoleOrSay();
  if (!isBuilt && process.exitCode === undefined) say('console  is up to date');
}
