// The suites of tests: which files belong to each, how long they may take, and what they need.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const minutesMs = 60_000;

/**
 * A file waits for much of its time, so others can use the processors: with four concurrent processes of several files, 1.67 of two
 * processors were busy. Memory bounds the number.
 */
const filesAtOnce = Math.min(os.availableParallelism() + 3, 8);
/** For suites that CI runs beside two others. */
const filesAtOnceBesideOthers = Math.min(os.availableParallelism() + 1, filesAtOnce);

/**
 * What a version of Node can change: HTTP, streams and sockets, SQLite and its threads, signals and timers, processes,
 * cryptography, the clients that people use, the engine's process and its binding, files, the command line's own. What stays the
 * same, such as how a dialect reads a body or how a price is computed, is a pure function that the ordinary tests cover.
 */
const nodeChanges = [
  'accounts/secret',
  'accounts/users/oidc',
  'accounts/users/second-factors',
  'accounts/users/sign-in',
  'app/control',
  'app/reload',
  'cli/chat',
  'cli/failures',
  'cli/serve',
  'cli/start',
  'clients',
  'conformance/6-streaming',
  'endings',
  'failures',
  'inference/engines/llama/bindings',
  'inference/engines/llama/default-model',
  'inference/engines/llama/engine',
  'inference/engines/openai',
  'inference/files',
  'inference/http',
  'inference/images',
  'inference/model-files',
  'notifications',
  'platform',
  'setup',
  'store',
].map((name) => path.normalize(name));

/** What a request may do, costs, and is limited by depends on its key, wherever that is stored. */
const keysDecide = [
  'billing/rate-limits',
  'conformance/5-authentication',
  'endings/revoked',
  'inference/http/authentication',
].map((name) => path.normalize(name));

/**
 * `minutes` ends a suite that hangs: several times what it takes on two slow cores; `fileMinutes` ends one file of it, or a group
 * of files that share a process. A suite without `files` has the files of its folder `tests/suites/<name>/`; if there is a
 * `setup.mjs`, it is run first. `only` are prefixes of the paths that it includes. `ci: false`: CI does not run it. `internet`: its
 * tests install from registries (what the others need from there has been fetched before they run). `clients`: its tests use the
 * official client libraries. `root`, `apt`: what the nightly workflow provides, and what CONTRIBUTING.md says that it needs.
 */
export const suites = {
  ordinary: {
    minutes: 35,
    fileMinutes: 9,
    concurrency: filesAtOnce,
    files: 'ordinary',
    about: 'everything a change must pass',
  },
  node24: {
    minutes: 35,
    fileMinutes: 9,
    concurrency: filesAtOnceBesideOthers,
    files: 'ordinary',
    only: nodeChanges,
    node: '24',
    newestClients: true,
    about: 'what Node can change on the newest Node 24, with the newest client libraries',
  },
  'cold-keys': {
    minutes: 20,
    fileMinutes: 9,
    concurrency: filesAtOnceBesideOthers,
    files: 'ordinary',
    only: keysDecide,
    about: 'what keys decide, with one key in the memory of each process',
  },
  start: {
    minutes: 10,
    fileMinutes: 9,
    concurrency: 1,
    internet: true,
    about: 'npm start in a fresh clone with an empty home folder',
  },
  package: {
    minutes: 10,
    fileMinutes: 9,
    concurrency: 1,
    internet: true,
    about: 'the npm package, packed, installed from a registry into an empty home folder, and started with npx',
  },
  deb: {
    root: true,
    apt: 'debootstrap lintian systemd-container curl',
    minutes: 15,
    fileMinutes: 12,
    concurrency: 1,
    ci: false,
    internet: true,
    about:
      'the Debian package: made, installed in a Debian 12 that its own systemd has booted, upgraded, removed and purged',
  },
  image: {
    root: true,
    apt: 'debootstrap podman runc netavark aardvark-dns catatonit iptables curl',
    minutes: 20,
    fileMinutes: 18,
    concurrency: 1,
    ci: false,
    internet: true,
    about: 'the container image: built by Podman, and run as the documentation, the compose files and the chart say',
  },
  launch: {
    minutes: 15,
    fileMinutes: 10,
    concurrency: 1,
    ci: false,
    internet: true,
    about: 'Claude Code, Codex, opencode, Cline, Continue and Open WebUI, as tokenhouse launch sets them up',
  },
  helm: {
    minutes: 5,
    fileMinutes: 4,
    concurrency: 1,
    ci: false,
    about: 'the Helm chart: linted, rendered as it is committed, and held to the schemas of Kubernetes',
  },
  gpu: {
    apt: 'mesa-vulkan-drivers libvulkan1',
    minutes: 40,
    fileMinutes: 35,
    concurrency: 1,
    ci: false,
    about:
      "the engine's build for Vulkan: installed from the npm registry, and behind the service on a software device",
  },
  workflows: {
    minutes: 3,
    fileMinutes: 2,
    concurrency: 1,
    about: 'the workflows of GitHub: linted',
  },
  faults: {
    minutes: 20,
    fileMinutes: 5,
    concurrency: 2,
    about: 'killed processes, full disks, exhausted memory, a frozen machine, backups under load, upgrades',
  },
  upgrade: {
    minutes: 30,
    fileMinutes: 25,
    concurrency: 1,
    ci: false,
    internet: true,
    about:
      'the upgrade from programs of earlier revisions, which it builds, under load on both stores, and the way back',
  },
  clock: {
    minutes: 10,
    fileMinutes: 8,
    concurrency: 1,
    about: 'the clock is set, of the service or one of two replicas',
  },
  overload: {
    minutes: 10,
    fileMinutes: 8,
    concurrency: 1,
    about: 'five times the load that the service can carry, and back',
  },
  families: {
    minutes: 15,
    fileMinutes: 8,
    concurrency: 2,
    about: 'conversations, charges, endings and errors that are the same in all API families',
  },
  browser: {
    minutes: 20,
    fileMinutes: 15,
    concurrency: 2,
    about: 'every page, and an application, in a real Chromium',
  },
  python: {
    minutes: 10,
    fileMinutes: 5,
    concurrency: 1,
    about: "the documentation's programs in Python, with the official clients",
  },
  'llama-server': {
    minutes: 15,
    fileMinutes: 10,
    concurrency: 1,
    clients: true,
    about: 'a real llama-server behind the service',
  },
  postgres: { minutes: 20, fileMinutes: 8, concurrency: 2, about: 'a real PostgreSQL below one and several replicas' },
  month: {
    minutes: 25,
    fileMinutes: 12,
    concurrency: 2,
    about: 'a month of 200,000 requests that comes to the same everywhere, on both stores',
  },
  s3: {
    minutes: 15,
    fileMinutes: 10,
    concurrency: 1,
    about: 'files and backups in a bucket of a real S3-compatible server',
  },
  stripe: { minutes: 10, fileMinutes: 5, concurrency: 1, about: "payments against Stripe's own stand-in for its API" },
  templates: {
    minutes: 5,
    fileMinutes: 4,
    concurrency: 1,
    ci: false,
    about:
      'the chat templates that llama.cpp is tested with: how each family writes its calls, and what is read of them',
  },
  vllm: {
    minutes: 120,
    fileMinutes: 40,
    concurrency: 1,
    ci: false,
    clients: true,
    about: 'a real vLLM behind the service; not part of CI, because it takes 6 GB',
  },
  tei: {
    minutes: 5,
    fileMinutes: 4,
    concurrency: 1,
    ci: false,
    clients: true,
    about: 'a real text-embeddings-inference behind the service; not part of CI, because no registry has it',
  },
  ollama: {
    minutes: 30,
    fileMinutes: 25,
    concurrency: 1,
    ci: false,
    clients: true,
    about: 'a real Ollama behind the service; not part of CI, because it is compiled for a quarter of an hour',
  },
  soak: { minutes: 35, fileMinutes: 14, concurrency: 2, about: 'mixed load with faults for minutes or hours' },
};

/** A developer may soak for hours. */
const soakMinutes = Number(process.env.TOKENHOUSE_SOAK_MINUTES ?? 0);

/** `slow`: the factor by which the machine is slower than a quiet one (scripts/slowness.mjs). */
export function suiteLimits(name, slow = 1) {
  const { minutes, fileMinutes } = suites[name];
  const longer = name === 'soak' ? soakMinutes : 0;
  const limitMs = (ofSuite) => Math.round((ofSuite * slow + longer) * minutesMs);
  return { suiteMs: limitMs(minutes), fileMs: limitMs(fileMinutes) };
}

/** Longer versions of tests, beside them: 100,000 mutations instead of 10,000, for example. */
const isSoak = (file) => file.endsWith('.soak.test.ts');
const isLong = (file) => isSoak(file) || file.startsWith(`suites${path.sep}`);

/** The test files of all suites, by their paths below the root. */
export const allTestFiles = (root) =>
  sourcesBelow(path.join(root, 'tests'))
    .filter((file) => file.endsWith('.test.ts'))
    .map((file) => path.relative(root, file))
    .toSorted();

/** Test files of a suite, by their paths below the root, that contain one of the words; all without words. `missed` are words in none. */
export function testFiles(root, name, words) {
  const { only } = suites[name];
  const own = suites[name].files === undefined ? `suites${path.sep}${name}${path.sep}` : undefined;
  const files = allTestFiles(root)
    .map((file) => path.relative('tests', file))
    .filter((file) => only === undefined || only.some((beginning) => file.startsWith(beginning)))
    .filter((file) => (own === undefined ? !isLong(file) : file.startsWith(own) || (name === 'soak' && isSoak(file))))
    .map((file) => path.join('tests', file));
  return {
    all: files,
    chosen: files.filter((file) => words.length === 0 || words.some((word) => file.includes(word))),
    missed: words.filter((word) => !files.some((file) => file.includes(word))),
  };
}

/** A message about words that no file contains: the files most likely meant, or where files are. */
export function missedText(suite, missed, files) {
  const said = `No test file of the suite '${suite}' contains ${missed.join(' or ')}.`;
  const near = [...new Set(missed.flatMap((word) => closestFiles(files, word)))];
  if (near.length > 0) return `${said} Nearest: ${near.join(', ')}`;
  const folders = new Set(files.map((file) => file.split(path.sep).slice(0, 2).join(path.sep)));
  return `${said} Its ${files.length} files are in ${[...folders].join(', ')}`;
}

const closestMax = 5;
/** "ledgr" and "ledger" have a likeness of 0.77, unrelated words 0.3 and less. */
const likenessMin = 0.5;

function closestFiles(files, word) {
  const wanted = partsOf(word);
  if (wanted.length === 0) return [];
  return files
    .map((file) => {
      const parts = partsOf(file);
      const best = wanted.map((one) => Math.max(...parts.map((part) => likeness(one, part))));
      return { file, alike: best.reduce((sum, one) => sum + one, 0) / wanted.length };
    })
    .filter(({ alike }) => alike >= likenessMin)
    .toSorted((a, b) => b.alike - a.alike || a.file.length - b.file.length)
    .slice(0, closestMax)
    .map(({ file }) => file);
}

const partsOf = (text) =>
  text
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((part) => part !== '');

/** From 0 to 1: the share of pairs of neighbouring letters that two words have in common (Dice's coefficient). */
function likeness(one, other) {
  const [pairs, others] = [one, other].map(
    (word) => new Set(Array.from({ length: word.length + 1 }, (_, at) => ` ${word} `.slice(at, at + 2))),
  );
  return (2 * [...pairs].filter((pair) => others.has(pair)).length) / (pairs.size + others.size);
}

function sourcesBelow(folder) {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (entry.name === 'node_modules') return [];
    return entry.isDirectory() ? sourcesBelow(path.join(folder, entry.name)) : [path.join(folder, entry.name)];
  });
}

/** Words choose files; `--suite`, `--node`, `--newest-clients` and `--again` are ours, other options go to `node --test`. */
export function readArguments(args) {
  const result = { suite: 'ordinary', node: undefined, newestClients: undefined, again: false, words: [], options: [] };
  for (let at = 0; at < args.length; at++) {
    const [, name, value] = /^--(suite|node)(?:=(.*))?$/s.exec(args[at]) ?? [];
    if (name !== undefined) result[name] = value ?? args[++at] ?? '';
    else if (args[at] === '--newest-clients') result.newestClients = true;
    else if (args[at] === '--again') result.again = true;
    else if (args[at].startsWith('-')) result.options.push(args[at]);
    else result.words.push(args[at]);
  }
  const problem = problemOf(result);
  if (problem !== undefined) return { problem };
  const { node, newestClients = false } = suites[result.suite];
  return { ...result, node: result.node ?? node, newestClients: result.newestClients ?? newestClients };
}

function problemOf({ suite, node }) {
  if (!Object.hasOwn(suites, suite)) {
    const list = Object.entries(suites).map(([name, { about }]) => `  ${name.padEnd(13)} ${about}`);
    return `There is no suite '${suite}'. There are:\n${list.join('\n')}`;
  }
  if (node !== undefined && !/^\d+$/.test(node)) return `--node takes a major version, for example 24, not '${node}'.`;
  return undefined;
}
