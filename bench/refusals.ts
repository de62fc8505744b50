import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { runLoad, type LoadResult } from './load.ts';
import { Processes, processorSeconds, residentMegabytes } from './processes.ts';
import { start, type Bench } from './round.ts';
import { requestBytes, type Scenario } from './scenarios.ts';
import { tokenhouse } from './tokenhouse.ts';
import { compileTools } from './tools.ts';
import { startUpstream } from './upstream.ts';
import { openReadOnlyConnection } from '../src/store/sqlite/connection.ts';
import { root } from '../tests/support/repository.ts';

const usage = `npm run bench refusals [-- --seconds N] [--beside DIR]

Floods of refused requests from one key, of each kind in turn and on 64 connections as fast as they are answered, beside 50 answers a second of another account: processor time of
a refusal, what the others wait, memory, and the rows that are left of it. Nothing is pinned to a core.

  --seconds N    of each flood (default 10)
  --beside DIR   another revision too, built in DIR
`;

const others: Scenario = {
  name: 'others',
  mode: 's',
  tokens: 8,
  paceMs: 0,
  connections: 64,
  seconds: 10,
  ratePerSecond: 50,
};
const { ratePerSecond: _, ...closed } = others;
const warmUpSeconds = 5;
/** Errors are written every two seconds. */
const writtenMs = 3_000;
/** Each request has a number of its own in its place, see load.c. */
const numbered = '########';

interface Flood {
  readonly name: string;
  readonly status: number;
  /** Its request; the same length, so that what the head says of it stays true. */
  readonly request: (from: { readonly request: (key: string, model: string) => string; readonly keys: Keys }) => string;
}

interface Keys {
  readonly good: string;
  readonly poor: string;
  readonly limited: string;
  readonly revoked: string;
}

const floods: readonly Flood[] = [
  { name: '402, no credit', status: 402, request: ({ request, keys }) => request(keys.poor, 'bench') },
  { name: '429, a limit of the key', status: 429, request: ({ request, keys }) => request(keys.limited, 'bench') },
  { name: '401, a revoked key', status: 401, request: ({ request, keys }) => request(keys.revoked, 'bench') },
  {
    name: '401, another unknown key each time',
    status: 401,
    request: ({ request, keys }) => request(keys.good.slice(0, -numbered.length) + numbered, 'bench'),
  },
  {
    name: '404, another model each time',
    status: 404,
    request: ({ request, keys }) => request(keys.good, `model-${numbered}`),
  },
  {
    name: '422, a role that does not exist',
    status: 422,
    request: ({ request, keys }) => request(keys.good, 'bench').replace('"role":"system"', '"role":"sistem"'),
  },
];

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const value = (name: string): string | undefined =>
    args.includes(name) ? (args[args.indexOf(name) + 1] ?? '') : undefined;
  const seconds = Number(value('--seconds') ?? 10);
  const beside = value('--beside');
  if (!(seconds > 0)) throw new UsageError('--seconds is a number above 0');
  const processes = new Processes();
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const tools = compileTools(join(root, 'bench'));
  const upstream = await startUpstream(processes, {
    program: tools.upstream,
    folder,
    core: undefined,
    port: undefined,
  });
  const bench: Bench = { tools, processes, upstream, folder, gatewayCore: undefined, otherCore: undefined, say };
  const titles = ['flood', 'answered/s', 'µs each', 'p50 ms', 'others: p50 ms', 'p99 ms', 'MB', 'rows written'];
  print('program', ...titles);
  print(...Array.from({ length: titles.length + 1 }, () => '-'));
  for (const [name, from] of [...(beside === undefined ? [] : [['before', resolve(beside)]]), ['tokenhouse', root]])
    await measure(bench, name!, from!, seconds);
  process.exit(0);
}

function print(...cells: readonly string[]): void {
  process.stdout.write(`| ${cells.join(' | ')} |\n`);
}

async function measure(bench: Bench, name: string, from: string, seconds: number): Promise<void> {
  const { running, prepared, folder } = await start(bench, '1', { ...tokenhouse(from, bench.processes), name });
  const { pid } = running!;
  const keys = prepareKeys(join(from, 'dist', 'main.js'), folder);
  const play = (scenario: Scenario, request: string): Promise<LoadResult> =>
    runLoad({
      program: bench.tools.load,
      core: undefined,
      port: prepared.port,
      requestFile: join(folder, `${scenario.name}.request`),
      request,
      scenario,
      seconds: scenario.seconds,
    });
  const request = (key: string, model: string): string => requestBytes(others, { ...prepared, key, model });
  const answers = (forSeconds: number) =>
    play({ ...others, seconds: forSeconds }, request(prepared.key, prepared.model));
  const ms = (us: number): string => (us / 1000).toFixed(1);
  const show = (title: string, ofFlood: readonly string[], { latencyUs }: LoadResult, rows = ''): void =>
    print(name, title, ...ofFlood, ms(latencyUs.p50), ms(latencyUs.p99), residentMegabytes(pid).toFixed(0), rows);
  await answers(warmUpSeconds);
  show('none', ['', '', ''], await answers(seconds));
  for (const { name: title, status, request: of } of floods) {
    const scenario: Scenario = { ...closed, name: 'flood', seconds, status };
    const text = of({ request, keys });
    // Warm, and the first ones of a limited key are answered.
    await play({ ...scenario, seconds: warmUpSeconds }, text);
    const [rowsBefore, usedBefore] = [rowsIn(folder), processorSeconds(pid)];
    const [flood, asked] = await Promise.all([play(scenario, text), answers(seconds)]);
    const used = processorSeconds(pid) - usedBefore;
    await sleep(writtenMs);
    const { good, bad, hung, latencyUs } = flood;
    const each = ((used * 1e6) / good).toFixed(0);
    show(
      title,
      [(good / flood.seconds).toFixed(0), each, ms(latencyUs.p50)],
      asked,
      String(rowsIn(folder) - rowsBefore),
    );
    if (bad + hung + asked.bad + asked.hung > 0)
      say(
        `${title}: ${bad} and ${asked.bad} bad, ${hung} and ${asked.hung} hung: ${flood.complaints}${asked.complaints}`,
      );
  }
  await bench.processes.stop(running!);
}

/** An account that pays, with a limited and a revoked key, and one without credit. */
function prepareKeys(main: string, folder: string): Keys {
  const command = (...words: readonly string[]): unknown => {
    const all = [main, ...words, '--config', join(folder, 'tokenhouse.yaml'), '--json'];
    const { status, stdout, stderr } = spawnSync(process.execPath, all, { encoding: 'utf8' });
    if (status !== 0) throw new Error(`${words.join(' ')}: ${stderr}`);
    return JSON.parse(stdout);
  };
  const payer = command('accounts', 'create', 'payer', '--key', 'good', '--credit', '1000') as Account;
  const poor = command('accounts', 'create', 'poor', '--key', 'poor') as Account;
  const create = ['keys', 'create', '--account', payer.id];
  const limited = command(...create, '--requests-per-day', '1') as Key;
  const revoked = command(...create) as Key;
  command('keys', 'revoke', revoked.id);
  return { good: payer.key.key, poor: poor.key.key, limited: limited.key, revoked: revoked.key };
}

/** Rows about errors. */
function rowsIn(folder: string): number {
  const connection = openReadOnlyConnection(join(folder, 'data', 'tokenhouse.db'));
  try {
    const count = (table: string): number =>
      Number((connection.prepare(`select count(*) as rows from ${table}`).get() as { readonly rows: bigint }).rows);
    return count('error_count') + count('refused_request');
  } finally {
    connection.close();
  }
}

interface Key {
  readonly id: string;
  readonly key: string;
}
interface Account {
  readonly id: string;
  readonly key: Key;
}
