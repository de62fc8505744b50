import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { readArguments, usage, UsageError, type Arguments } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { measureConsole } from './console.ts';
import { direct, external, type Contender } from './contender.ts';
import { aboveAim, familyScenarios, printFamilyTable } from './families.ts';
import { measureLarge } from './large.ts';
import { machineFacts, revision } from './machine.ts';
import { micro } from './micro.ts';
import { comparedWith, peers } from './peers.ts';
import { Problem } from './problem.ts';
import { allowedCores, Processes, raisePriority } from './processes.ts';
import { profile, profilingOptions } from './profile.ts';
import { writeSection } from './results.ts';
import { playRound, type Bench, type RoundResult } from './round.ts';
import { coldThousand, quick, scenarios, warmUps, type Scenario } from './scenarios.ts';
import { measureLargeLedger } from './large-ledger.ts';
import { measureReports } from './reports.ts';
import { settle } from './settle.ts';
import { printTable } from './table.ts';
import { tokenhouse } from './tokenhouse.ts';
import { compileTools } from './tools.ts';
import { startUpstream } from './upstream.ts';
import { root } from '../tests/support/repository.ts';

/**
 * `npm run bench`: see bench/README.md. Exit codes: 1 an answer was wrong or missing, or a family costs too much, 64 wrong usage, 69 something that it
 * needs is missing.
 */

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const options = readArguments(args);
  if (options.isHelp) return say(usage);
  if (options.isMicro) return (process.stdout.write(`${await micro()}\n`), undefined);
  if (process.platform !== 'linux')
    throw new Problem(
      `The benchmark needs Linux (it reads /proc and pins programs to cores); this is ${process.platform}.`,
      'Run it on a Linux machine.',
    );

  if (options.settles) {
    const facts = machineFacts({ root, dataFolder: options.folder ?? tmpdir(), contenders: [], isRaised: false });
    const seconds = options.isQuick ? 2 : 5;
    const table = await settle({ root, rounds: options.rounds, seconds, folder: options.folder });
    return report(options, args, [table, '', ...facts.map((fact) => `- ${fact}`)].join('\n'));
  }

  if (options.reports) {
    const facts = machineFacts({ root, dataFolder: options.folder ?? tmpdir(), contenders: [], isRaised: false });
    const table = await measureReports({ root, rows: options.rows, stores: options.stores, folder: options.folder });
    return report(options, args, [table, ...facts.map((fact) => `- ${fact}`)].join('\n'));
  }

  if (options.keepsLedger) {
    const { rows, accounts } = options;
    const facts = machineFacts({ root, dataFolder: options.folder ?? tmpdir(), contenders: [], isRaised: false });
    const table = await measureLargeLedger({ root, rows, accounts });
    return report(options, args, [table, ...facts.map((fact) => `- ${fact}`)].join('\n'));
  }

  if (options.visitsConsole) {
    const { setup } = (await import(pathToFileURL(join(root, 'tests/suites/browser/setup.mjs')).href)) as {
      setup(): Promise<{ readonly TOKENHOUSE_TEST_CHROMIUM?: string }>;
    };
    const found = await setup();
    Object.assign(process.env, found);
    const { TOKENHOUSE_TEST_CHROMIUM: chromium = process.env['TOKENHOUSE_TEST_CHROMIUM']! } = found;
    const facts = machineFacts({ root, dataFolder: tmpdir(), contenders: [], isRaised: false });
    const table = await measureConsole({ rows: options.rows, chromium });
    return report(options, args, [table, ...facts.map((fact) => `- ${fact}`)].join('\n'));
  }

  const tools = compileTools(join(root, 'bench'));
  const processes = new Processes();
  const isRaised = raisePriority();
  const [gatewayCore, otherCore] = twoCores();
  const folder = mkdtempSync(join(options.folder ?? tmpdir(), 'tokenhouse-bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const upstream = await startUpstream(processes, {
    program: tools.upstream,
    core: otherCore,
    port: options.upstreamPort,
    folder,
  });
  const bench: Bench = { tools, processes, upstream, folder, gatewayCore, otherCore, say };
  const chosen = chosenScenarios(options);
  const node = await nodeProgram(options);

  if (options.profiles) {
    const profileFolder = join(folder, 'profile');
    const contender = tokenhouse(root, processes, { node, nodeOptions: profilingOptions(profileFolder) });
    for (const scenario of chosen)
      process.stdout.write(`${await profile(bench, { root, contender, scenario, folder: profileFolder })}\n`);
    process.exit(0);
  }

  if (options.sendsLarge) {
    const facts = machineFacts({ root, dataFolder: folder, contenders: [], isRaised });
    const table = await measureLarge(bench, { root, rounds: options.rounds, isQuick: options.isQuick });
    report(options, args, [table, '', ...facts.map((fact) => `- ${fact}`)].join('\n'));
    process.exit(0);
  }

  const contenders = options.comparesFamilies
    ? [tokenhouse(root, processes, { node })]
    : await chosenContenders(options, processes, upstream.port, node);
  const facts = machineFacts({
    root,
    dataFolder: folder,
    contenders,
    isRaised,
    node,
    isPinned: gatewayCore !== undefined,
  });
  const results: RoundResult[] = [];
  for (let round = 1; round <= options.rounds; round++) {
    say(`round ${round} of ${options.rounds}`);
    const scenariosOfRound = options.comparesFamilies ? familyScenarios(options.isQuick, round) : warm(chosen, options);
    const played = await playRound(bench, round, contenders, scenariosOfRound);
    results.push(...played);
    if (options.rawFile !== undefined)
      appendFileSync(options.rawFile, played.map((result) => `${JSON.stringify(result)}\n`).join(''));
  }
  const table = options.comparesFamilies
    ? printFamilyTable(results)
    : printTable(results, options.withPeers ? comparedWith : []);
  report(options, args, [table, '', ...facts.map((fact) => `- ${fact}`)].join('\n'));
  const wrong = results.flatMap(({ points }) => Object.values(points)).filter(({ load }) => load.bad + load.hung > 0);
  const dear = options.comparesFamilies ? aboveAim(results) : [];
  for (const line of dear) say(line);
  process.exit(wrong.length + dear.length === 0 ? 0 : 1);
}

/** One for the measured program and one for all others, this process included; none on a machine with one core. */
function twoCores(): readonly [number, number] | readonly [undefined, undefined] {
  const [first, second] = allowedCores();
  if (first === undefined || second === undefined) return [undefined, undefined];
  try {
    execFileSync('taskset', ['-a', '-c', '-p', String(second), String(process.pid)], { stdio: 'ignore' });
  } catch {
    throw new Problem(
      'taskset is missing, so programs cannot be kept on a core.',
      'Debian, Ubuntu: apt-get install util-linux',
    );
  }
  return [first, second];
}

function chosenScenarios({ isQuick, scenarios: names, profiles }: Arguments): readonly Scenario[] {
  const wanted = names ?? (profiles ? ['whole-sse'] : scenarios.map(({ name }) => name));
  const unknown = wanted.filter((name) => !scenarios.some((scenario) => scenario.name === name));
  if (unknown.length > 0)
    throw new UsageError(
      `unknown scenario ${unknown.join(', ')}; there are ${scenarios.map(({ name }) => name).join(', ')}`,
    );
  const chosen = scenarios.filter(({ name }) => wanted.includes(name));
  return isQuick ? chosen.map(quick) : chosen;
}

/** The program of Node that what is measured runs on. */
async function nodeProgram({ nodeMajor }: Arguments): Promise<string> {
  if (nodeMajor === undefined) return process.execPath;
  const module = pathToFileURL(join(root, 'scripts', 'node-binary.mjs')).href;
  return ((await import(module)) as { nodeBinary(major: string): string }).nodeBinary(nodeMajor);
}

/** With what comes before them: all but the cold scenario measure warm programs. */
function warm(chosen: readonly Scenario[], { isQuick }: Arguments): readonly Scenario[] {
  const isCold = ({ name }: Scenario): boolean => name === coldThousand.name;
  const others = chosen.filter((scenario) => !isCold(scenario));
  if (others.length === 0) return chosen;
  return [...chosen.filter(isCold), ...(isQuick ? warmUps.map(quick) : warmUps), ...others];
}

async function chosenContenders(
  { only, gateways, beside, withPeers }: Arguments,
  processes: Processes,
  upstreamPort: number,
  node: string,
): Promise<readonly Contender[]> {
  const all: readonly Contender[] = [
    direct,
    ...(await peers({ root, say, isAll: withPeers, only, node })),
    ...(beside === undefined ? [] : [{ ...tokenhouse(resolve(beside), processes, { node }), name: 'before' }]),
    tokenhouse(root, processes, { node }),
    ...gateways.map((line) => external(line, upstreamPort)),
  ];
  const unknown = only?.filter((name) => !all.some((contender) => contender.name === name)) ?? [];
  if (unknown.length > 0)
    throw new UsageError(
      `unknown contender ${unknown.join(', ')}; there are ${all.map(({ name }) => name).join(', ')}`,
    );
  return all.filter(({ name }) => only === undefined || only.includes(name));
}

function report(options: Arguments, args: readonly string[], text: string): void {
  const words = args.filter((word) => word !== '--write');
  const command = ['npm run bench', ...(words.length > 0 ? ['--', ...words.map(quoted)] : [])].join(' ');
  process.stdout.write(`${text}\n`);
  if (!options.writes) return;
  const file = join(root, 'bench', 'results.md');
  const title = `${new Date().toISOString().slice(0, 10)}, ${revision(root)}, \`${command}\``;
  writeSection(file, title, text);
  say(`written to ${file}: ${title}`);
}

function quoted(argument: string): string {
  return /^[\w,./=-]+$/.test(argument) ? argument : `'${argument}'`;
}
