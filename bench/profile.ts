import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { SourceMap, type SourceMapPayload } from 'node:module';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Contender } from './contender.ts';
import { runLoad, type LoadResult } from './load.ts';
import { threadSeconds } from './processes.ts';
import { start, type Bench } from './round.ts';
import { requestBytes, type Scenario } from './scenarios.ts';

const samplingIntervalUs = 250;
const warmUpRequests = 10_000;
const warmUpSecondsMax = 20;

/** Where a profile is written: these stand before the program. A thread writes one of its own. */
export const profilingOptions = (folder: string): readonly string[] => [
  '--cpu-prof',
  `--cpu-prof-interval=${samplingIntervalUs}`,
  `--cpu-prof-dir=${folder}`,
];

export interface ProfileOptions {
  readonly root: string;
  readonly contender: Contender;
  readonly scenario: Scenario;
  /** The folder of `profilingOptions`. */
  readonly folder: string;
}

/**
 * Plays one scenario under the profiler and tells, for each thread, the functions with most time of their own. It is time
 * on the clock: a function that waits for the disk, or whose thread had to give up the core, counts too. What the kernel
 * counted for each thread stands above it.
 */
export async function profile(bench: Bench, { root, contender, scenario, folder }: ProfileOptions): Promise<string> {
  mkdirSync(folder, { recursive: true });
  const { name, prepared, running, folder: ownFolder } = await start(bench, scenario.name, contender);
  if (running === undefined) throw new Error(`${name} has no process to profile`);
  const load = (seconds: number, requests: number | undefined): Promise<LoadResult> =>
    runLoad({
      program: bench.tools.load,
      core: bench.otherCore,
      port: prepared.port,
      requestFile: join(ownFolder, 'request'),
      request: requestBytes(scenario, prepared),
      scenario,
      seconds,
      requests,
    });
  if (scenario.warmUpRequests !== undefined) await load(warmUpSecondsMax, warmUpRequests);
  const usedBefore = threadSeconds(running.pid);
  const fromUs = monotonicUs();
  const result = await load(scenario.seconds, scenario.requests);
  const window = { fromUs, toUs: monotonicUs() };
  const used = [...threadSeconds(running.pid)].map(([thread, seconds]) => seconds - (usedBefore.get(thread) ?? 0));
  await bench.processes.stop(running);

  const files = readdirSync(folder).filter((file) => file.endsWith('.cpuprofile'));
  if (files.length === 0) throw new Error(`${name} wrote no profile`);
  const threads = files.map((file) =>
    selfTimes(JSON.parse(readFileSync(join(folder, file), 'utf8')) as CpuProfile, window, root),
  );
  const busiest = threads.filter(({ busyMs }) => busyMs > threadBusyMsMin).toSorted((a, b) => b.busyMs - a.busyMs);
  const processorSeconds = used.filter((seconds) => seconds > 0).toSorted((a, b) => b - a);
  return [
    `${scenario.name} under the profiler: ${result.good} good answers, ${result.bad} bad, in ${result.seconds.toFixed(1)} s\n` +
      `CPU of the threads that used any, s: ${processorSeconds.map((seconds) => seconds.toFixed(2)).join(', ')}`,
    ...busiest.map((times) => print(times, result.good)),
  ].join('\n\n');
}

/** Threads that did less are not shown. */
const threadBusyMsMin = 50;

/** The clock of V8's profiles. */
const monotonicUs = (): number => Number(process.hrtime.bigint() / 1000n);

/** The file that V8 writes. */
interface CpuProfile {
  readonly nodes: readonly ProfileNode[];
  readonly startTime: number;
  /** Ids of nodes, and the microseconds before each. */
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

interface ProfileNode {
  readonly id: number;
  readonly callFrame: {
    readonly functionName: string;
    readonly url: string;
    readonly lineNumber: number;
    readonly columnNumber: number;
  };
}

interface SelfTimes {
  readonly busyMs: number;
  readonly functions: ReadonlyMap<string, number>;
  readonly areas: ReadonlyMap<string, number>;
}

interface Window {
  readonly fromUs: number;
  readonly toUs: number;
}

function selfTimes(
  { nodes, startTime, samples, timeDeltas }: CpuProfile,
  { fromUs, toUs }: Window,
  root: string,
): SelfTimes {
  const placeOf = placeFinder(root);
  const byId = new Map(nodes.map((node) => [node.id, node.callFrame]));
  const functions = new Map<string, number>();
  const areas = new Map<string, number>();
  let busyMs = 0;
  let timeUs = startTime;
  const add = (sums: Map<string, number>, name: string, ms: number): unknown =>
    sums.set(name, (sums.get(name) ?? 0) + ms);
  for (const [index, id] of samples.entries()) {
    const frame = byId.get(id)!;
    timeUs += timeDeltas[index]!;
    // A sample stands for the time until the next one.
    const ms = (timeDeltas[index + 1] ?? 0) / 1000;
    if (timeUs < fromUs || timeUs > toUs || frame.functionName === '(idle)') continue;
    const place = placeOf(frame);
    busyMs += ms;
    add(functions, `${frame.functionName || '(anonymous)'}${place === '' ? '' : `  ${place}`}`, ms);
    add(areas, areaOf(frame, place), ms);
  }
  return { busyMs, functions, areas };
}

/** File and line as a person finds them: of the TypeScript, relative to the repository. */
function placeFinder(root: string): (frame: ProfileNode['callFrame']) => string {
  const maps = new Map<string, SourceMap | undefined>();
  const mapOf = (file: string): SourceMap | undefined => {
    if (!maps.has(file))
      maps.set(
        file,
        existsSync(`${file}.map`)
          ? new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8')) as SourceMapPayload)
          : undefined,
      );
    return maps.get(file);
  };
  return ({ url, lineNumber, columnNumber }) => {
    if (!url.startsWith('file:')) return url;
    const file = fileURLToPath(url);
    const entry = mapOf(file)?.findEntry(lineNumber, columnNumber);
    const compiled = relative(root, file).replace(/^.*(?=node_modules\/)/, '');
    if (entry === undefined || !('originalLine' in entry)) return `${compiled}:${lineNumber + 1}`;
    return `${compiled.replace(/^dist\//, '').replace(/\.js$/, '.ts')}:${entry.originalLine + 1}`;
  };
}

/** A folder of ours, a package, Node itself, or what V8 does on its own. */
function areaOf({ functionName, url }: ProfileNode['callFrame'], place: string): string {
  if (url.startsWith('node:')) return 'node';
  const parts = place.split('/');
  if (parts.includes('node_modules'))
    return parts
      .slice(parts.lastIndexOf('node_modules') + 1, parts.lastIndexOf('node_modules') + 3)
      .join('/')
      .replace(/\/(?!.*@).*$/, '');
  if (parts[0] === 'src') return parts.slice(0, parts.length > 2 ? 2 : 1).join('/');
  return functionName.startsWith('(') ? functionName : 'built into V8';
}

const functionsShown = 40;
const shareShownMin = 0.002;

function print({ busyMs, functions, areas }: SelfTimes, answers: number): string {
  const line = ([name, ms]: readonly [string, number]): string =>
    `${ms.toFixed(0).padStart(7)} ms ${((ms / busyMs) * 100).toFixed(1).padStart(5)} % ${((ms * 1000) / answers).toFixed(2).padStart(7)} µs each  ${name}`;
  const top = (sums: ReadonlyMap<string, number>): string[] =>
    [...sums]
      .toSorted((a, b) => b[1] - a[1])
      .filter(([, ms]) => ms > busyMs * shareShownMin)
      .slice(0, functionsShown)
      .map(line);
  return [
    `A thread that was busy for ${busyMs.toFixed(0)} ms. By area:`,
    ...top(areas),
    '',
    'By function, its own time:',
    ...top(functions),
  ].join('\n');
}
