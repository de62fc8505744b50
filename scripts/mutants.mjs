// `node scripts/mutants.mjs FILE… [--tests WORD]… [--count N] [--seed N] [--minutes N] [--slow N] [--out FILE]`: mutates the operators, conditions,
// cases, early returns, numbers and truth values of these sources one at a time, and runs the ordinary tests that judge them.
//
//   --tests WORD   test files whose path contains the word judge, besides those named in `judges`
//   --count N      that many mutants, drawn at random (default: all)
//   --seed N       of the draw (default 1)
//   --minutes N    stops after that time (default 60)
//   --slow N       leaves out test files that take more than N seconds (default 12)
//   --at-once N    so many test files run beside each other (default: a processor less than there are)
//   --no-program   the program is not built: the tests start none of its processes and threads (a store has some), or it is there
//   --out FILE     the survivors, a line each, as they are found
//
// What a thread or child of the program does is not mutated there, because tests start the program as it is built.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { buildFiles, buildProgram, dist, filesBelow } from './bundle.mjs';
import { stackTraces } from './build-tests.mjs';
import { aboutOf, fail, root, say } from './setup.mjs';
import { testFiles } from './suites.mjs';
import { withMutants } from './mutants-source.mjs';

/** The tests that are about a source, by words of their paths; the first row that matches counts. Others are judged by the nearest. */
const judges = [
  ['src/billing/hold.ts', ['billing/holds', 'billing/budgets.', 'billing/lost', 'billing/credit.']],
  ['src/billing/bill.ts', ['billing/holds', 'billing/budgets.']],
  ['src/billing/cents.ts', ['billing/cents']],
  ['src/billing/endings.ts', ['pipeline/who-pays', 'billing/holds']],
  [
    'src/billing/payments/returns.ts',
    ['payments/returns', 'payments/payments', 'payments/webhook-table', 'payments/failed-refund'],
  ],
  ['src/billing/payments/spendable.ts', ['payments/spendable']],
  [
    'src/billing/payments/',
    ['payments/payments', 'payments/returns', 'payments/webhook-table', 'payments/stripe', 'payments/routes'],
  ],
  ['src/billing/rate-limits/windows.ts', ['rate-limits/windows', 'rate-limits/rate-limits']],
  ['src/billing/rate-limits/rates.ts', ['rate-limits/rate-limits']],
  ['src/billing/rate-limits/', ['billing/rate-limits/', 'store/limit-windows']],
  ['src/account-api/senders.ts', ['account-api/who-may', 'account-api/api.']],
  ['src/account-api/cross-site.ts', ['account-api/who-may']],
  ['src/account-api/viewing.ts', ['account-api/who-may', 'account-api/viewing']],
  ['src/accounts/users/cookies.ts', ['account-api/who-may']],
  ['src/accounts/users/email-change.ts', ['users/email-change']],
  ['src/inference/constraints/regex', ['constraints/regex', 'constraints/string-length', 'constraints/grammar-sizes']],
  ['src/inference/constraints/ebnf', ['constraints/ebnf', 'constraints/grammar-sizes']],
  ['src/inference/constraints/acceptor.ts', ['constraints/acceptor', 'constraints/grammar-sizes']],
  ['src/inference/constraints/program.ts', ['constraints/acceptor', 'constraints/grammar-sizes']],
  [
    'src/inference/constraints/grammar.ts',
    ['constraints/grammar', 'constraints/normal-form', 'constraints/json-schema'],
  ],
  ['src/inference/constraints/normal-form.ts', ['constraints/normal-form', 'constraints/grammar-sizes']],
  ['src/inference/constraints/numbers.ts', ['constraints/numbers', 'constraints/grammar-sizes']],
  ['src/inference/constraints/json-text.ts', ['constraints/json-text', 'constraints/grammar-sizes']],
  ['src/inference/constraints/string-length.ts', ['constraints/string-length', 'constraints/grammar-sizes']],
  [
    'src/inference/constraints/automaton',
    ['constraints/string-length', 'constraints/schema-texts', 'constraints/grammar-sizes'],
  ],
  ['src/inference/constraints/code-points.ts', ['constraints/regex-characters', 'constraints/json-text']],
  [
    'src/inference/constraints/',
    ['constraints/schema-', 'constraints/counted', 'constraints/string-length', 'constraints/grammar-sizes'],
  ],
  ['src/inference/http/no-route.ts', ['http/wrong-paths']],
  ['src/inference/pipeline/cancellation.ts', ['pipeline/who-pays']],
  ['src/inference/pipeline/fit.ts', ['pipeline/fit', 'pipeline/prompt-lengths']],
  ['src/inference/pipeline/idempotency.ts', ['pipeline/idempotency']],
  ['src/inference/pipeline/receipt.ts', ['pipeline/who-pays', 'pipeline/attempts', 'rate-limits/given-back']],
  ['src/inference/pipeline/prompt-lengths.ts', ['pipeline/prompt-lengths']],
  [
    'src/inference/pipeline/run.ts',
    ['pipeline/who-pays', 'pipeline/attempts', 'pipeline/before-the-hold', 'rate-limits/given-back'],
  ],
  ['src/platform/dollars.ts', ['platform/dollars']],
];
const nearest = 14;
const { values, positionals } = parseArgs({
  options: {
    tests: { type: 'string', multiple: true, default: [] },
    count: { type: 'string', default: 'Infinity' },
    seed: { type: 'string', default: '1' },
    minutes: { type: 'string', default: '60' },
    slow: { type: 'string', default: '12' },
    'at-once': { type: 'string', default: String(Math.max(1, os.availableParallelism() - 1)) },
    'no-program': { type: 'boolean', default: false },
    out: { type: 'string' },
  },
  allowPositionals: true,
});
if (positionals.length === 0) fail(aboutOf(import.meta.url));
const slowMs = Number(values.slow) * 1_000;
const endsAt = Date.now() + Number(values.minutes) * 60_000;
if (values.out !== undefined) fs.writeFileSync(values.out, '');

const all = [];
const codes = new Map(
  positionals.map((file) => {
    const { code, mutants } = withMutants(file, fs.readFileSync(path.join(root, file), 'utf8'), all.length);
    all.push(...mutants);
    return [path.join(root, file), code];
  }),
);
const tests = chosenTests();
/** A property says at once that it fails, instead of looking for the smallest case, and has the same cases for each mutant. */
const properties = { endOnFailure: true, seed: Number(values.seed) };
if (!values['no-program']) await buildProgram();
fs.mkdirSync(dist, { recursive: true });
const folder = fs.mkdtempSync(path.join(dist, 'run-'));
try {
  fs.symlinkSync(dist, path.join(folder, 'program'), 'junction');
  const mutated = {
    name: 'mutants',
    setup(build) {
      build.onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path: file }) =>
        codes.has(file) ? { contents: codes.get(file), loader: 'ts' } : undefined,
      );
      build.onLoad({ filter: /[\\/]fast-check\.js$/ }, ({ path: file }) => ({
        contents: `${fs.readFileSync(file, 'utf8')}configureGlobal(${JSON.stringify(properties)});`,
      }));
    },
  };
  await buildFiles({ files: [...tests.keys(), stackTraces], folder, program: dist, plugins: [mutated] });
  await judge(await baseline());
} finally {
  fs.rmSync(folder, { recursive: true, force: true });
}

/** By test file, the sources that it judges. */
function chosenTests() {
  const { all: ordinary } = testFiles(root, 'ordinary', []);
  const importers = importersOf();
  const judged = new Map();
  for (const source of positionals) {
    const words = judges.find(([beginning]) => source.startsWith(beginning))?.[1];
    const owning = words === undefined ? nearestTo(source, importers, ordinary) : withWord(ordinary, words);
    for (const file of [...owning, ...withWord(ordinary, values.tests)])
      judged.set(file, (judged.get(file) ?? new Set()).add(source));
  }
  return judged;
}

function withWord(files, words) {
  return files.filter((file) => words.some((word) => file.includes(word)));
}

function importersOf() {
  const importers = new Map();
  const sources = ['src', 'tests']
    .flatMap((name) => filesBelow(path.join(root, name)))
    .filter((file) => file.endsWith('.ts'));
  for (const file of sources) {
    for (const [, specifier] of fs
      .readFileSync(file, 'utf8')
      .matchAll(/^(?:import|export)(?! type)[^;]*?from '(\.[^']+)'/gm)) {
      const target = path.join(path.dirname(file), specifier);
      importers.set(target, [...(importers.get(target) ?? []), file]);
    }
  }
  return importers;
}

/** The ordinary test files from which the source can be reached by the fewest imports. */
function nearestTo(source, importers, ordinary) {
  const known = new Set([path.join(root, source)]);
  for (const file of known) for (const importer of importers.get(file) ?? []) known.add(importer);
  const reached = [...known].map((file) => path.relative(root, file)).filter((file) => ordinary.includes(file));
  return reached.slice(0, nearest);
}

/** How long each test file takes as the sources are, and which mutants it comes to. Files that fail, or are slow, are left out. */
async function baseline() {
  const found = [];
  for (const [file, sources] of tests) {
    const log = path.join(folder, 'reached');
    fs.rmSync(log, { force: true });
    const startedAt = Date.now();
    const verdict = await outcome(file, { TOKENHOUSE_MUTANTS_REACHED: log }, slowMs);
    const ms = Date.now() - startedAt;
    if (verdict !== 'passed') say(`left out: ${file} fails or takes more than ${slowMs / 1000} s`);
    else if (fs.existsSync(log)) {
      const reached = fs.readFileSync(log, 'utf8').split(' ').map(Number);
      found.push({ file, ms, reached: new Set(reached.filter((id) => sources.has(all[id]?.file))) });
    }
  }
  return found.toSorted((left, right) => left.ms - right.ms);
}

async function judge(files) {
  const drawn = shuffled(all, Number(values.seed)).slice(0, Number(values.count));
  const results = { killed: 0, survived: [], unreached: [], left: 0, slow: 0 };
  const counts = new Map(positionals.map((file) => [file, { mutants: 0, killed: 0 }]));
  const todo = [...drawn];
  const one = async () => {
    for (let mutant = todo.shift(); mutant !== undefined; mutant = todo.shift()) {
      if (Date.now() > endsAt) {
        results.left++;
        continue;
      }
      const covering = files.filter(({ reached }) => reached.has(mutant.id));
      let isKilled = false;
      for (const { file, ms } of covering) {
        const verdict = await outcome(file, { TOKENHOUSE_MUTANT: String(mutant.id) }, 3 * ms + 20_000);
        if (verdict === 'passed') continue;
        if (verdict === 'too slow') results.slow++;
        isKilled = true;
        break;
      }
      const count = counts.get(mutant.file);
      count.mutants++;
      if (isKilled) count.killed++;
      if (isKilled) results.killed++;
      else {
        const kind = covering.length === 0 ? 'unreached' : 'survived';
        results[kind].push(mutant);
        if (values.out !== undefined) fs.appendFileSync(values.out, `${kind.padEnd(11)}${textOf(mutant)}\n`);
      }
    }
  };
  await Promise.all(Array.from({ length: Number(values['at-once']) }, one));
  const judged = drawn.length - results.left;
  const lines = [
    ...results.survived.map((mutant) => `survived   ${textOf(mutant)}`),
    ...results.unreached.map((mutant) => `unreached  ${textOf(mutant)}`),
  ];
  process.stdout.write(`${lines.toSorted().join('\n')}\n`);
  for (const [file, { mutants, killed }] of counts) process.stdout.write(`${file}: ${killed} of ${mutants} killed\n`);
  process.stdout.write(
    `${all.length} mutants, ${judged} judged by ${files.length} test files: ${results.killed} killed (${results.slow} by not ending), `,
  );
  process.stdout.write(`${results.survived.length} survived, ${results.unreached.length} no test comes to\n`);
}

function textOf({ file, line, what, code }) {
  return `${file}:${line}  ${what}  |  ${code}`;
}

/** Runs a bundled test file by itself, for at most `ms`: passed, failed or too slow. */
function outcome(file, variables, ms) {
  const built = path.join(folder, file.replace(/\.ts$/, '.js'));
  const traces = pathToFileURL(path.join(folder, stackTraces.replace(/\.ts$/, '.js'))).href;
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ['--test-reporter=tap', '--import', traces, built], {
      cwd: root,
      stdio: ['ignore', 'pipe', 'ignore'],
      detached: true,
      env: { ...process.env, NODE_EXTRA_CA_CERTS: undefined, ...variables },
    });
    const end = () => {
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has just ended.
      }
    };
    let isLate = false;
    const limit = setTimeout(() => {
      isLate = true;
      end();
    }, ms);
    let isFailed = false;
    child.stdout.on('data', (data) => {
      // The first failure decides.
      if (!/^ *not ok /m.test(data)) return;
      isFailed = true;
      end();
    });
    child.on('exit', (code) => {
      clearTimeout(limit);
      end();
      resolve(isLate ? 'too slow' : code === 0 && !isFailed ? 'passed' : 'failed');
    });
  });
}

function shuffled(items, seed) {
  let state = seed;
  const random = () => (state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff) / 0x80000000;
  return items
    .map((item) => [random(), item])
    .toSorted(([left], [right]) => left - right)
    .map(([, item]) => item);
}
