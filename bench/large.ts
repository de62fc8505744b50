import { fork, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Prepared } from './contender.ts';
import type { LargeJob, LargeReading } from './large-process.ts';
import { runLoad, type LoadResult } from './load.ts';
import { residentMegabytes } from './processes.ts';
import { start, type Bench } from './round.ts';
import { requestBytes, type Scenario } from './scenarios.ts';
import { median } from './table.ts';
import { tokenhouse } from './tokenhouse.ts';

interface Case {
  readonly name: string;
  readonly atOnce: number;
}

const cases: readonly Case[] = [
  { name: 'nobody else', atOnce: 0 },
  { name: 'one text of 40 MB after the other', atOnce: 1 },
  { name: 'ten texts of 40 MB at once', atOnce: 10 },
];
const textBytes = 40_000_000;

/** Small requests of others, few enough that they cost nothing themselves. */
const others: Scenario = {
  name: 'others',
  mode: 's',
  tokens: 8,
  paceMs: 0,
  connections: 32,
  seconds: 20,
  ratePerSecond: 20,
};

const warmUpSeconds = 2;

interface Result {
  readonly others: LoadResult;
  readonly large: LargeReading;
  readonly megabytes: number;
}

/**
 * How long small requests take while somebody else sends large texts (docs/decisions/005-load-and-queues.md; the aim is 100 ms at
 * p95). The service has all cores, because large bodies are parsed on threads of their own. Resolves with a table.
 */
export async function measureLarge(
  pinned: Bench,
  { root, rounds, isQuick }: { readonly root: string; readonly rounds: number; readonly isQuick: boolean },
): Promise<string> {
  const bench = { ...pinned, gatewayCore: undefined, otherCore: undefined };
  const results = new Map<Case, Result[]>(cases.map((one) => [one, []]));
  for (let round = 1; round <= rounds; round++) {
    for (const [place, one] of cases.entries()) {
      bench.say(`round ${round} of ${rounds}: ${one.name}`);
      const contender = tokenhouse(root, bench.processes, { nodeOptions: [], contextLength: 2 * textBytes });
      const { prepared, running, folder } = await start(bench, `${round}-${place}`, contender);
      try {
        results.get(one)!.push(await play(bench, prepared, folder, running!.pid, one, isQuick ? 4 : others.seconds));
      } finally {
        await bench.processes.stop(running!);
      }
    }
  }
  return tableOf(results);
}

async function play(
  bench: Bench,
  prepared: Prepared,
  folder: string,
  pid: number,
  { atOnce }: Case,
  seconds: number,
): Promise<Result> {
  const load = (forSeconds: number): Promise<LoadResult> =>
    runLoad({
      program: bench.tools.load,
      core: undefined,
      port: prepared.port,
      requestFile: join(folder, 'others.request'),
      request: requestBytes(others, prepared),
      scenario: others,
      seconds: forSeconds,
    });
  await load(warmUpSeconds);
  if (atOnce === 0) {
    const large = { answered: 0, refused: 0, failed: 0 };
    return { others: await load(seconds), large, megabytes: residentMegabytes(pid) };
  }
  const sender = fork(fileURLToPath(new URL('./large-process.js', import.meta.url)));
  try {
    const job: LargeJob = { ...prepared, bytes: textBytes, atOnce };
    sender.send(job);
    await said(sender);
    let megabytes = 0;
    const looks = setInterval(() => (megabytes = Math.max(megabytes, residentMegabytes(pid))), 200);
    const measured = await load(seconds).finally(() => clearInterval(looks));
    sender.send('enough');
    return { others: measured, large: (await said(sender)) as LargeReading, megabytes };
  } finally {
    sender.kill('SIGKILL');
  }
}

function said(child: ChildProcess): Promise<unknown> {
  return new Promise((resolve, reject) => {
    child.once('message', resolve);
    child.once('exit', (code, signal) => reject(new Error(`the sender of large texts ended with ${signal ?? code}`)));
  });
}

function tableOf(results: ReadonlyMap<Case, readonly Result[]>): string {
  const lines = [...results].map(([{ name }, rounds]) => {
    const middle = (of: (result: Result) => number, digits = 0): string =>
      median(rounds.map(of).toSorted((one, other) => one - other)).toFixed(digits);
    const quantiles = (['p50', 'p95', 'p99', 'max'] as const).map((name) =>
      middle(({ others: { latencyUs } }) => latencyUs[name] / 1000, 1),
    );
    return `| ${name} | ${[
      ...quantiles,
      middle(({ others: { good } }) => good),
      middle(({ others: { bad, hung } }) => bad + hung),
      ...(['answered', 'refused', 'failed'] as const).map((outcome) => middle(({ large }) => large[outcome])),
      middle(({ megabytes }) => megabytes),
    ].join(' | ')} |`;
  });
  return [
    '| beside | p50 ms | p95 ms | p99 ms | max ms | others answered | refused or wrong | texts answered | refused | failed | peak MB |',
    `|-|${'-:|'.repeat(10)}`,
    ...lines,
  ].join('\n');
}
