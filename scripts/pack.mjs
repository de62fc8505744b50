// Writes libraries that are hundreds of small modules as one file each to dist/node_modules, where what is compiled finds them
// before the installed ones. Reading the modules took longer than anything else that a command or a test does when it starts:
// docs/decisions/021-packed-libraries.md.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { fail, isStarted, root, say } from './setup.mjs';

const libraries = ['kysely', 'typebox'];
const packed = path.join(root, 'dist', 'node_modules');

/** The libraries that are to be packed anew; of a clone that does not use them, none. */
export function unpackedLibraries() {
  const { dependencies = {} } = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));
  return libraries.filter((name) => dependencies[name] !== undefined && readVersion(packed, name) !== wanted(name));
}

/** Another way of packing packs what is there anew. */
const wanted = (name) => `${readVersion(path.join(root, 'node_modules'), name)}-packed.2`;

function readVersion(modules, name) {
  const file = path.join(modules, name, 'package.json');
  return fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, 'utf8')).version : undefined;
}

/** Beside the place where it is looked for, until it is whole. */
async function pack(name) {
  const target = path.join(packed, name);
  const folder = `${target}-${process.pid}`;
  fs.mkdirSync(folder, { recursive: true });
  try {
    await write(name, folder);
    fs.rmSync(target, { recursive: true, force: true });
    fs.renameSync(folder, target);
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

async function write(name, folder) {
  const source = path.join(root, 'node_modules', name);
  const { exports } = JSON.parse(fs.readFileSync(path.join(source, 'package.json'), 'utf8'));
  const entries = Object.entries(exports).map(([subpath, { import: file }]) => ({
    subpath,
    file: path.join(source, file),
    output: subpath === '.' ? 'index.js' : `${subpath.slice(2).replaceAll('/', '-')}.js`,
  }));
  const { text, numberOf } = await modulesOf(
    entries.map(({ file }) => file),
    source,
  );
  const outputs = Object.fromEntries(entries.map(({ subpath, output }) => [subpath, `./${output}`]));
  const description = { name, version: wanted(name), type: 'module', exports: outputs };
  fs.writeFileSync(path.join(folder, 'package.json'), JSON.stringify(description));
  fs.writeFileSync(path.join(folder, 'modules.js'), text);
  const { load } = await import(pathToFileURL(path.join(folder, 'modules.js')).href);
  for (const { subpath, file, output } of entries) {
    const names = Object.keys(await import(pathToFileURL(file).href)).toSorted();
    const got = Object.keys(load(numberOf.get(file))).toSorted();
    if (names.join() !== got.join()) throw new Error(`${name}, ${subpath}: other names than the original`);
    fs.writeFileSync(path.join(folder, output), entryText(numberOf.get(file), names));
  }
}

const entryText = (number, names) =>
  [
    `import { load } from './modules.js';`,
    `const all = load(${number});`,
    ...names.map((name, index) =>
      name === 'default'
        ? `export default all.default;`
        : `const _${index} = all.${name}; export { _${index} as ${name} };`,
    ),
    '',
  ].join('\n');

/** Every module that the entries need, each as a function; a module runs when it is first needed, as it does unpacked. */
async function modulesOf(entries, source) {
  const { default: ts } = await import('typescript');
  const numberOf = new Map(entries.map((file, index) => [file, index]));
  const functions = [];
  for (const [file, number] of numberOf) {
    const options = {
      module: ts.ModuleKind.Node16,
      target: ts.ScriptTarget.ES2022,
      noEmitHelpers: true,
      newLine: ts.NewLineKind.LineFeed,
    };
    const { outputText } = ts.transpileModule(fs.readFileSync(file, 'utf8'), {
      // The name makes it CommonJS, and leaves `import()` as it is.
      fileName: file.replace(/\.m?js$/, '.cts'),
      compilerOptions: { ...options, removeComments: true, esModuleInterop: false },
    });
    const body = outputText.replaceAll(/\brequire\((["'])(.+?)\1\)/g, (_all, _quote, specifier) => {
      const needed = path.resolve(path.dirname(file), specifier);
      if (!specifier.startsWith('.') || !needed.startsWith(source)) throw new Error(`${file} needs ${specifier}`);
      if (!numberOf.has(needed)) numberOf.set(needed, numberOf.size);
      return `require(${numberOf.get(needed)})`;
    });
    functions[number] = `(exports, require, __exportStar) => {\n${body}}`;
  }
  return { text: `${runtime}const modules = [\n${functions.join(',\n')}\n];\n`, numberOf };
}

/** `export *` of a module that has not run to its end yet, because two need each other, is completed when it has. */
const runtime = `const loaded = new Map();
export const load = (number) => {
  const known = loaded.get(number);
  if (known !== undefined) return known.exports;
  const own = { exports: {}, followers: [] };
  loaded.set(number, own);
  of.set(own.exports, own);
  modules[number](own.exports, load, follow);
  for (const follower of own.followers) copy(own, follower);
  return own.exports;
};
const of = new WeakMap();
const follow = (from, to) => {
  of.get(from).followers.push(of.get(to));
  copy(of.get(from), of.get(to));
};
const copy = (from, to) => {
  let isMore = false;
  for (const name of Object.keys(from.exports)) {
    if (name === 'default' || Object.hasOwn(to.exports, name)) continue;
    Object.defineProperty(to.exports, name, { enumerable: true, get: () => from.exports[name] });
    isMore = true;
  }
  if (isMore) for (const follower of to.followers) copy(to, follower);
};
`;

if (isStarted(import.meta.url)) {
  const startedAt = Date.now();
  const names = unpackedLibraries();
  try {
    for (const name of names) await pack(name);
  } catch (error) {
    fail(`pack     not done: ${error.message}`);
  }
  if (names.length > 0) say(`pack     ${names.join(', ')} in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
}
