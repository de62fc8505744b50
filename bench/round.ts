import { mkdirSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender, Prepared } from './contender.ts';
import { runLoad, type LoadResult } from './load.ts';
import {
  coreBusySeconds,
  nanosecondsOnCore,
  processorSeconds,
  residentMegabytes,
  type Processes,
  type ActiveRequests,
} from './processes.ts';
import { requestBytes, type Scenario } from './scenarios.ts';
import type { Tools } from './tools.ts';
import type { Upstream } from './upstream.ts';

/** Where things run. */
export interface Bench {
  readonly tools: Tools;
  readonly processes: Processes;
  readonly upstream: Upstream;
  readonly folder: string;
  /** The core of the measured program, and the one of everything else; `undefined` on a machine with a single core. */
  readonly gatewayCore: number | undefined;
  readonly otherCore: number | undefined;
  readonly say: (line: string) => void;
}

/** One contender in one round. */
export interface RoundResult {
  readonly round: number;
  readonly contender: string;
  readonly coldStartMs: number | undefined;
  /** Processor time from its start until it is idle, its first answer included. */
  readonly startSeconds: number | undefined;
  readonly idleMegabytes: number | undefined;
  /** Share of a core that it uses when nobody asks anything. */
  readonly idleShare: number | undefined;
  readonly loadedMegabytes: number | undefined;
  readonly points: Readonly<Record<string, Point>>;
}

/** One contender under one kind of load. */
export interface Point {
  readonly load: LoadResult;
  /** Processor time of the contender while the load ran; `undefined` where it has no process. */
  readonly processorSeconds: number | undefined;
  /** Share of the contender's core that it used itself, and that others used. */
  readonly coreShare: number | undefined;
  readonly foreignShare: number | undefined;
  /** Streams that the upstream saw aborted. */
  readonly abortsPassedOn: number;
}

interface Started {
  readonly name: string;
  readonly prepared: Prepared;
  readonly running: ActiveRequests | undefined;
  readonly folder: string;
  readonly coldStartMs: number | undefined;
}

/** Collectors of garbage work some ten seconds longer than a start. */
const settleMs = 14_000;
const idleMs = 10_000;

/** Starts all contenders, gives each scenario to one after the other (in a new order every time), and stops them. */
export async function playRound(
  bench: Bench,
  round: number,
  contenders: readonly Contender[],
  scenarios: readonly Scenario[],
): Promise<RoundResult[]> {
  const started: Started[] = [];
  try {
    for (const contender of contenders) started.push(await start(bench, String(round), contender));
    await sleep(settleMs);
    const startSeconds = started.map(({ running }) => running && processorSeconds(running.pid));
    const idleShares = await idle(started);
    const idleMegabytes = started.map(({ running }) => running && residentMegabytes(running.pid));
    const points: Record<string, Point>[] = started.map(() => ({}));
    for (const [turn, scenario] of scenarios.entries()) {
      for (let step = 0; step < started.length; step++) {
        const index = (step + turn + round) % started.length;
        const point = await playScenario(bench, started[index]!, scenario, points[index]!);
        if (point !== undefined) points[index]![scenario.name] = point;
      }
    }
    return started.map(({ name, running, coldStartMs }, index) => ({
      round,
      contender: name,
      coldStartMs,
      startSeconds: startSeconds[index],
      idleMegabytes: idleMegabytes[index],
      idleShare: idleShares[index],
      loadedMegabytes: running && residentMegabytes(running.pid),
      points: points[index]!,
    }));
  } finally {
    for (const { running } of started) if (running !== undefined) await bench.processes.stop(running);
  }
}

/** How much of a core each of them uses while none is asked anything. */
async function idle(started: readonly Started[]): Promise<readonly (number | undefined)[]> {
  const used = (): (number | undefined)[] => started.map(({ running }) => running && nanosecondsOnCore(running.pid));
  const before = used();
  const startedAtMs = performance.now();
  await sleep(idleMs);
  const elapsedMs = performance.now() - startedAtMs;
  return used().map((after, index) => after && (after - before[index]!) / (elapsedMs * 1e6));
}

/** Starts a contender and waits for its first answer. Its files lie in a folder with the label in its name. */
export async function start(bench: Bench, label: string, contender: Contender): Promise<Started> {
  const { name } = contender;
  const folder = join(bench.folder, `${name}-${label}`);
  mkdirSync(folder, { recursive: true });
  const prepared = await contender.prepare(folder, bench.upstream.port);
  if (prepared.command === undefined) return { name, prepared, running: undefined, folder, coldStartMs: undefined };
  const startedAtMs = performance.now();
  const running = bench.processes.start({
    command: prepared.command,
    core: bench.gatewayCore,
    cwd: folder,
    logFile: outputFile(folder),
  });
  try {
    await firstAnswer(name, prepared, running);
  } catch (error) {
    await bench.processes.stop(running);
    throw new Error(outputIn(folder), { cause: error });
  }
  return { name, prepared, running, folder, coldStartMs: performance.now() - startedAtMs };
}

/** Beside the folder: the service watches the folder of its configuration, and each line of the log would wake it. */
const outputFile = (folder: string): string => `${folder}.log`;
const outputIn = (folder: string): string => readFileSync(outputFile(folder), 'utf8').slice(-2_000);

const startTimeoutMs = 60_000;
const firstRequest: Scenario = { name: 'first', mode: 's', tokens: 1, paceMs: 0, connections: 1, seconds: 1 };

async function firstAnswer(name: string, prepared: Prepared, running: ActiveRequests): Promise<void> {
  const body = requestBytes(firstRequest, prepared).split('\r\n\r\n')[1]!;
  const deadlineMs = performance.now() + startTimeoutMs;
  for (;;) {
    const status = await postStatus(prepared, body);
    if (status === 200) return;
    const end = running.ended();
    if (end !== undefined) throw new Error(`${name} ${end} before its first answer`);
    if (performance.now() > deadlineMs)
      throw new Error(`${name} gave no answer within ${startTimeoutMs / 1000} s (${status ?? 'no connection'})`);
    await sleep(5);
  }
}

function postStatus({ port, key }: Prepared, body: string): Promise<number | undefined> {
  return new Promise((resolve) => {
    const headers = {
      'content-type': 'application/json',
      authorization: `Bearer ${key}`,
      'content-length': Buffer.byteLength(body),
    };
    const sent = request(
      { host: '127.0.0.1', port, method: 'POST', path: '/v1/chat/completions', headers, agent: false, timeout: 10_000 },
      (answer) => {
        answer.resume().once('close', () => resolve(answer.statusCode));
      },
    );
    sent.once('timeout', () => sent.destroy());
    sent.once('error', () => resolve(undefined));
    sent.end(body);
  });
}

const warmUpSecondsMax = 60;

async function playScenario(
  bench: Bench,
  contender: Started,
  scenario: Scenario,
  earlier: Readonly<Record<string, Point>>,
): Promise<Point | undefined> {
  if (!canCarry(scenario, earlier)) {
    bench.say(`  ${scenario.name.padEnd(15)} ${contender.name.padEnd(12)} left out, it is more than one core carries`);
    return undefined;
  }
  if (scenario.warmUpRequests !== undefined && contender.running !== undefined)
    await load(bench, contender, { ...scenario, seconds: warmUpSecondsMax, requests: scenario.warmUpRequests });
  const point = await measure(bench, contender, scenario);
  bench.say(`  ${scenario.name.padEnd(15)} ${contender.name.padEnd(12)} ${inWords(point)}`);
  if (point.load.complaints !== '') bench.say(`    ${point.load.complaints.replaceAll('\n', '\n    ')}`);
  return point;
}

/** An open loop above what a gateway can carry would measure a queue. */
function canCarry({ ratePerSecond, capacityFrom }: Scenario, earlier: Readonly<Record<string, Point>>): boolean {
  const capacity = capacityFrom === undefined ? undefined : earlier[capacityFrom]?.load;
  if (ratePerSecond === undefined || capacity === undefined) return true;
  return ratePerSecond < (0.9 * capacity.good) / capacity.seconds;
}

async function measure(bench: Bench, contender: Started, scenario: Scenario): Promise<Point> {
  const { running } = contender;
  const { gatewayCore, upstream } = bench;
  const abortedBefore = (await upstream.stats()).aborted;
  const usedBefore = running && processorSeconds(running.pid);
  const busyBefore = gatewayCore === undefined || running === undefined ? undefined : coreBusySeconds(gatewayCore);
  const startedAtMs = performance.now();
  const result = await load(bench, contender, scenario);
  const seconds = (performance.now() - startedAtMs) / 1000;
  const end = running?.ended();
  if (end !== undefined)
    throw new Error(`${contender.name} ${end} during ${scenario.name}:\n${outputIn(contender.folder)}`);
  const used = running && processorSeconds(running.pid) - usedBefore!;
  const busy = busyBefore === undefined ? undefined : coreBusySeconds(gatewayCore!) - busyBefore;
  return {
    load: result,
    processorSeconds: used,
    coreShare: used === undefined ? undefined : used / seconds,
    foreignShare: busy === undefined ? undefined : Math.max(0, busy - (used ?? 0)) / seconds,
    abortsPassedOn: (await upstream.whenQuiet()).aborted - abortedBefore,
  };
}

const load = (bench: Bench, { prepared, folder }: Started, scenario: Scenario): Promise<LoadResult> =>
  runLoad({
    program: bench.tools.load,
    core: bench.otherCore,
    port: prepared.port,
    requestFile: join(folder, `${scenario.name}.request`),
    request: requestBytes(scenario, prepared),
    scenario,
    seconds: scenario.seconds,
    requests: scenario.requests,
  });

function inWords({
  load: { good, bad, hung, tokens, seconds, latencyUs, firstTokenUs },
  processorSeconds: used,
  foreignShare,
}: Point): string {
  return [
    `${(good / seconds).toFixed(0)}/s`,
    `latency p50 ${(latencyUs.p50 / 1000).toFixed(2)} ms`,
    `first token p50 ${(firstTokenUs.p50 / 1000).toFixed(2)} ms`,
    ...(used === undefined
      ? []
      : [`${((used * 1e6) / good).toFixed(0)} µs of CPU each, ${((used * 1e6) / tokens).toFixed(1)} a token`]),
    ...(foreignShare === undefined ? [] : [`others used ${(foreignShare * 100).toFixed(0)} % of the core`]),
    ...(bad + hung > 0 ? [`${bad} BAD, ${hung} HUNG`] : []),
  ].join(', ');
}
