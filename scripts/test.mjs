// `npm test [-- filter…] [-- --test-name-pattern=…]`: installs, builds, fetches the default model, and runs the tests.
// Words are filters: only test files whose path contains one of them run. Options go to `node --test`.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from './build.mjs';
import { fail, root, say, setup } from './setup.mjs';

setup();
build();
await fetchDefaultModel();
process.exitCode = await runTests(process.argv.slice(2));

/** Tests on the real model fail by themselves without it; the others need not wait for a network. */
async function fetchDefaultModel() {
  const load = (file) => import(pathToFileURL(path.join(root, 'dist', 'src', file)).href);
  const [{ readEnvironment }, { readConfig }, { fetchModelFile }, { progressDisplay }] = await Promise.all(
    ['config/environment.js', 'config/read.js', 'model-files/fetch-model-file.js', 'model-files/progress.js'].map(load),
  );
  const environment = readEnvironment();
  const { sources, sha256, bytes } = readConfig('', { directory: root, environment }).models[0].backends[0];
  const display = progressDisplay(process.stderr);
  try {
    await fetchModelFile({
      sources,
      sha256,
      bytes,
      directory: environment.modelDirectory,
      environment,
      onProgress: display.show,
    });
    display.end();
  } catch (error) {
    display.end();
    say('model    could not be fetched, so the tests that need it will fail:');
    for (const { source, problem } of error.attempts ?? [{ source: 'error', problem: error.message }])
      say(`         ${source}: ${problem}`);
    for (const remedy of error.remedies ?? []) say(`         ${remedy}`);
  }
}

/** Suites for hours and for figures have commands of their own. */
function runTests(args) {
  const options = args.filter((arg) => arg.startsWith('-'));
  const filters = args.filter((arg) => !arg.startsWith('-'));
  const folder = path.join(root, 'dist', 'tests');
  const all = fs.readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.test.js'));
  const ordinary = all.filter((file) => !/\.(soak|bench)\.test\.js$/.test(file)).toSorted();
  const chosen =
    filters.length === 0 ? ordinary : ordinary.filter((file) => filters.some((filter) => file.includes(filter)));
  if (chosen.length === 0) fail(`No test file contains ${filters.join(' or ')}. There are: ${ordinary.join(', ')}`);
  const files = chosen.map((file) => path.join('dist', 'tests', file));
  const fixed = [
    '--enable-source-maps',
    '--test',
    '--test-concurrency=2',
    '--test-timeout=300000',
    '--test-reporter=spec',
  ];
  const child = spawn(process.execPath, [...fixed, ...options, ...files], { cwd: root, stdio: 'inherit' });
  // The terminal sends an interrupt to the child as well; this process waits for it to end.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  return new Promise((resolve) => child.on('close', (code) => resolve(code ?? 1)));
}
