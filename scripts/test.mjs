// `npm test [-- word…] [-- --test-name-pattern=…]`: installs, builds, fetches the default model, and runs the tests.
//
//   --suite NAME        another suite than the ordinary tests; each has a command of its own (`npm run suite soak`)
//   --node MAJOR        under the newest Node of this major version, which is fetched from the npm registry
//   --newest-clients    with the newest client libraries instead of the locked ones
//   --again             runs a file that failed once more, alone; one that passes then is named as unsteady
//   --help              this
//
// Words are filters: only test files whose path contains one of them run. Other options go to `node --test`.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { dist } from './bundle.mjs';
import { buildTests, stackTraces } from './build-tests.mjs';
import { clientTests, installClients } from './clients.mjs';
import { newestClients } from './newest-clients.mjs';
import { nodeBinary } from './node-binary.mjs';
import { notingUrl } from './processor-time.mjs';
import { aboutOf, fail, root, say, setup } from './setup.mjs';
import { slowness } from './slowness.mjs';
import { allTestFiles, missedText, readArguments, suiteLimits, suites, testFiles } from './suites.mjs';
import { runOnceMore } from './once-more.mjs';
import { groupFile, groupSource, groupsOf } from './test-groups.mjs';
import { failedTogether, processorNotes, summaryLines } from './test-summary.mjs';

if (process.argv.includes('--help')) {
  process.stdout.write(aboutOf(import.meta.url));
  process.exit();
}
const {
  problem,
  suite,
  node,
  newestClients: wantsNewestClients,
  again,
  words,
  options,
} = readArguments(process.argv.slice(2));
if (problem !== undefined) fail(problem);

const { all, chosen, missed } = testFiles(root, suite, words);
if (all.length === 0) fail(`The suite '${suite}' has no test files.`);
if (missed.length > 0) fail(missedText(suite, missed, all));
setup();
if (suites[suite].clients === true || chosen.some((file) => file.startsWith(clientTests))) installClients();
const modelSources = [
  'config/environment',
  'config/read',
  'inference/model-files/fetch-model-file',
  'inference/model-files/progress',
].map((name) => `src/${name}.ts`);
// Without words all suites are bundled together, because CI runs all of them.
const bundled = await buildTests(words.length === 0 ? allTestFiles(root) : chosen, modelSources);
const folder = fs.mkdtempSync(path.join(dist, 'run-'));
await fetchDefaultModel();
const program = node === undefined ? process.execPath : nodeBinary(node);
const imports = wantsNewestClients ? newestClients() : [];
const variables = await setUpSuite();
const run = (files, concurrency) => runTests(files, concurrency, variables);
const { code, unsteady } = await runOnceMore(run, chosen, suites[suite].concurrency, again);
fs.rmSync(folder, { recursive: true, force: true });
for (const file of unsteady) process.stdout.write(`unsteady: ${suite}: ${file}\n`);
process.exitCode = code;

/** Without it, tests on the real model fail by themselves, and the others need not wait for a network. */
async function fetchDefaultModel() {
  const [{ readEnvironment }, { readConfig }, { fetchModelFile }, { progressDisplay }] = await Promise.all(
    modelSources.map((file) => import(pathToFileURL(builtFile(file)).href)),
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

/** Sets up what a suite needs beyond the dependencies; returns environment variables for its tests. */
async function setUpSuite() {
  const file = path.join(root, 'tests', 'suites', suite, 'setup.mjs');
  if (!fs.existsSync(file)) return {};
  const { setup: setUp } = await import(pathToFileURL(file).href);
  try {
    return (await setUp()) ?? {};
  } catch (error) {
    return fail(`The suite '${suite}' could not be set up: ${error.message}`);
  }
}

/**
 * Resolves after the summary, with the exit code and the files that failed, in lists of those that failed together; the lists are
 * empty if the suite was ended. With a concurrency of one, each file has its own process.
 */
async function runTests(files, concurrency, variables) {
  const summaryFile = path.join(folder, 'summary');
  const notesUrl = notingUrl(processorNotes(summaryFile));
  const mayShare = suites[suite].files === 'ordinary' && concurrency > 1;
  const groups = mayShare ? groupsOf(files, root) : files.map((file) => [file]);
  for (const file of [summaryFile, processorNotes(summaryFile)]) fs.rmSync(file, { force: true });
  const slow = slowness();
  const { suiteMs, fileMs } = suiteLimits(suite, slow);
  const parameters = [
    ...[pathToFileURL(builtFile(stackTraces)).href, ...imports].flatMap((url) => ['--import', url]),
    ...['--import', notesUrl, '--test'],
    ...[`--test-concurrency=${concurrency}`, `--test-timeout=${fileMs}`],
    ...['--test-reporter=spec', '--test-reporter-destination=stdout'],
    ...[`--test-reporter=${pathToFileURL(path.join(root, 'scripts', 'test-summary.mjs')).href}`],
    ...[`--test-reporter-destination=${summaryFile}`, ...options, ...groups.map(entry)],
  ];
  function entry(group, index) {
    if (group.length === 1) return builtFile(group[0]);
    const file = path.join(folder, groupFile(index));
    fs.writeFileSync(file, groupSource(group, builtFile, notesUrl));
    return file;
  }
  const startedAt = performance.now();
  // A separate process group, so that everything the tests have started ends with them.
  const child = spawn(program, parameters, {
    cwd: root,
    stdio: 'inherit',
    detached: process.platform !== 'win32',
    // Without the variables by which a program knows that npm started it: its output must not depend on who runs the tests. And
    // without certificate authorities that only the internet needs: each Node reads them at its start, which takes 50 ms of
    // processor time, as much as Node 20 takes otherwise, and the tests start thousands.
    env: {
      ...process.env,
      npm_command: undefined,
      ...(suites[suite].internet === true ? {} : { NODE_EXTRA_CA_CERTS: undefined }),
      TOKENHOUSE_TEST_SLOWNESS: slow.toFixed(2),
      ...variables,
      PATH: `${path.dirname(program)}${path.delimiter}${process.env.PATH}`,
    },
  });
  let overdue = false;
  const limit = setTimeout(() => {
    overdue = true;
    say(`tests    the suite '${suite}' did not end within ${Math.round(suiteMs / 60_000)} minutes`);
    kill(child, 'SIGTERM');
    setTimeout(() => kill(child, 'SIGKILL'), 10_000).unref();
  }, suiteMs);
  let stopped = false;
  const stop = (signal) => {
    stopped = true;
    kill(child, signal);
  };
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, stop);
  const code = await new Promise((resolve) => child.on('close', (status) => resolve(status ?? 1)));
  for (const signal of ['SIGINT', 'SIGTERM']) process.off(signal, stop);
  clearTimeout(limit);
  if (overdue) kill(child, 'SIGKILL');
  for (const line of summaryLines({ suite, file: summaryFile, root, seconds: (performance.now() - startedAt) / 1000 }))
    process.stdout.write(`${line}\n`);
  const filesWith = (module) =>
    files.filter((file) => fs.readFileSync(builtFile(file), 'utf8').includes(path.basename(module)));
  const failed = overdue || stopped ? [] : failedTogether(summaryFile, root, groups, filesWith);
  return { code: overdue ? 1 : code, failed };
}

function builtFile(file) {
  return path.join(bundled, file.replace(/\.ts$/, '.js'));
}

function kill({ pid }, signal) {
  try {
    process.kill(process.platform === 'win32' ? pid : -pid, signal);
  } catch {
    // It has just ended.
  }
}
