import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { runLoad } from './load.ts';
import { startPostgres } from './postgres.ts';
import { Processes, processorSeconds, residentMegabytes } from './processes.ts';
import { start, type Bench } from './round.ts';
import { requestBytes, type Scenario } from './scenarios.ts';
import { tokenhouse } from './tokenhouse.ts';
import { compileTools } from './tools.ts';
import { startUpstream } from './upstream.ts';
import { root } from '../tests/support/repository.ts';

const usage = `npm run bench workers [-- STORE:WORKERS …]

What a whole answer costs with several workers (server.workers): processor time of all the service's processes, and of
PostgreSQL beside them. Medians of three turns after a warm-up; nothing is pinned to a core.
Without words: sqlite:1 postgres:1 postgres:2 postgres:4
`;

const whole: Omit<Scenario, 'name'> = { mode: 's', tokens: 8, paceMs: 0, connections: 64, seconds: 4 };
const saturated: Scenario = { ...whole, name: 'saturated' };
const paced: Scenario = { ...whole, name: '200 a second', ratePerSecond: 200, seconds: 5 };
const turns = 3;
/** Code that is new to V8 costs twice as much, and workers share the load. */
const warmUpSecondsOfWorker = 8;
const idleSeconds = 5;

interface Measured {
  readonly bench: Bench;
  readonly name: string;
  readonly storage: string;
  readonly workers: number;
  /** Of the database's own process. */
  readonly databasePid: number | undefined;
}

const print = (...cells: readonly string[]): void => void process.stdout.write(`| ${cells.join(' | ')} |\n`);

await runCommand(main, usage);

async function main(words: readonly string[]): Promise<void> {
  const wanted = (words.length > 0 ? words : ['sqlite:1', 'postgres:1', 'postgres:2', 'postgres:4']).map((word) => {
    const [, store, workers] = /^(sqlite|postgres):(\d+)$/.exec(word) ?? [];
    if (store === undefined) throw new UsageError(`'${word}' is not a store and a number of workers`);
    return { name: `${store}-${workers}`, isPostgres: store === 'postgres', workers: Number(workers) };
  });
  const processes = new Processes();
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const tools = compileTools(join(root, 'bench'));
  const everywhere = { core: undefined, port: undefined };
  const upstream = await startUpstream(processes, { program: tools.upstream, folder, ...everywhere });
  const bench: Bench = { tools, processes, upstream, folder, gatewayCore: undefined, otherCore: undefined, say };
  const server = wanted.some(({ isPostgres }) => isPostgres) ? await startPostgres(root) : undefined;
  try {
    print('store, workers', 'load', 'answers/s', 'service µs', 'database µs', 'p50 ms', 'idle %, database', 'MB');
    print(...Array.from({ length: 8 }, () => '-'));
    for (const { name, isPostgres, workers } of wanted) {
      const on = isPostgres ? server : undefined;
      const storage = (await on?.createDatabase()) ?? 'sqlite:./data/tokenhouse.db';
      await measure({ bench, name, storage, workers, databasePid: on?.pid });
    }
  } finally {
    await server?.dispose();
  }
  process.exit(0);
}

async function measure({ bench, name, storage, workers, databasePid }: Measured): Promise<void> {
  const contender = { ...tokenhouse(root, bench.processes, { nodeOptions: [], storage, workers }), name };
  const { running, prepared, folder } = await start(bench, '1', contender);
  const { pid } = running!;
  /** Seconds of the service's processes and of the database's while something is done. */
  const used = async <Value>(work: () => Promise<Value>): Promise<readonly [Value, number, number]> => {
    const now = (): readonly number[] => [pid, databasePid].map((id) => (id === undefined ? 0 : processorSeconds(id)));
    const before = now();
    const value = await work();
    const [service, database] = now().map((seconds, index) => seconds - before[index]!);
    return [value, service!, database!];
  };
  const load = async (scenario: Scenario, seconds = scenario.seconds) => {
    const request = requestBytes(scenario, prepared);
    const to = {
      program: bench.tools.load,
      core: undefined,
      port: prepared.port,
      requestFile: join(folder, 'request'),
    };
    const [result, service, database] = await used(() => runLoad({ ...to, request, scenario, seconds }));
    const { good, bad, hung } = result;
    if (bad + hung > 0) throw new Error(`${bad} bad, ${hung} hung: ${result.complaints}`);
    return {
      perSecond: good / result.seconds,
      serviceUs: (service * 1e6) / good,
      databaseUs: (database * 1e6) / good,
      p50Ms: result.latencyUs.p50 / 1000,
    };
  };
  const first = await load(saturated, 1);
  say(`${name}: in the first second ${first.serviceUs.toFixed(0)} µs each`);
  await load(saturated, warmUpSecondsOfWorker * workers);
  await sleep(2_000);
  const [, ...idle] = await used(() => sleep(idleSeconds * 1_000));
  for (const scenario of [saturated, paced]) {
    const played: Awaited<ReturnType<typeof load>>[] = [];
    for (let turn = 0; turn < turns; turn++) played.push(await load(scenario));
    const median = (of: (one: (typeof played)[number]) => number, digits = 0): string =>
      played
        .map(of)
        .toSorted((a, b) => a - b)
        [Math.floor(turns / 2)]!.toFixed(digits);
    print(
      name,
      scenario.name,
      median(({ perSecond }) => perSecond),
      `${median(({ serviceUs }) => serviceUs)} (${played.map(({ serviceUs }) => serviceUs.toFixed(0)).join(', ')})`,
      median(({ databaseUs }) => databaseUs),
      median(({ p50Ms }) => p50Ms, 1),
      idle.map((seconds) => ((seconds * 100) / idleSeconds).toFixed(1)).join(', '),
      residentMegabytes(pid).toFixed(0),
    );
  }
  await bench.processes.stop(running!);
}
