/**
 * `npm run world -- [--seeds N] [--from S] [--minutes N] [--jobs N] [--theme batches] [--all] [--trace]`: plays schedules in as many
 * processes as there are cores, and shows the first to fail, with its trace.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';

import { buildWorld, worldFolder } from './build.ts';
import { play } from './schedule.ts';
import { makeTemplate } from './setup.ts';
import { themes, type Theme } from './story.ts';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '100' },
    from: { type: 'string', default: '1' },
    minutes: { type: 'string', default: '1000' },
    jobs: { type: 'string', default: String(availableParallelism()) },
    /** Which of the processes this is. */
    job: { type: 'string' },
    theme: { type: 'string' },
    all: { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
  },
});
const theme = values.theme as Theme | undefined;
if (theme !== undefined && !(theme in themes)) throw new Error(`there is no theme ${theme}`);
const [seeds, from, minutes] = [Number(values.seeds), Number(values.from), Number(values.minutes)];
const jobs = Math.min(Number(values.jobs), seeds);
if (!(jobs >= 1)) throw new Error('--jobs and --seeds are numbers from 1');

/** What a schedule came to, without the trace if nobody wants to read it. */
interface Outcome {
  readonly seed: number;
  readonly faults: readonly string[];
  readonly trace: readonly string[];
  readonly tasks: number;
  readonly deaths: number;
  readonly cpuMicros: number;
}

/** Plays every `jobs`th schedule. `report` resolves with whether to go on. */
async function playShare(first: number, report: (outcome: Outcome) => boolean): Promise<void> {
  const folder = worldFolder();
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const scripts = await buildWorld(folder);
  const world = { scripts, folder, template: await makeTemplate(scripts, `${folder}/template`) };
  const lastMs = performance.now() + minutes * 60_000;
  for (let seed = first; seed < from + seeds && performance.now() < lastMs; seed += jobs) {
    const begun = process.cpuUsage();
    const { faults, trace, tasks, deaths } = await play(world, seed, theme);
    const { user, system } = process.cpuUsage(begun);
    const isRead = values.trace || faults.length > 0;
    if (!report({ seed, faults, trace: isRead ? trace : [], tasks, deaths, cpuMicros: user + system })) return;
  }
}

const sum = { played: 0, tasks: 0, deaths: 0, cpuMicros: 0 };
const failed: number[] = [];

function note({ seed, faults, trace, tasks, deaths, cpuMicros }: Outcome): boolean {
  sum.played++;
  sum.tasks += tasks;
  sum.deaths += deaths;
  sum.cpuMicros += cpuMicros;
  const isFirst = faults.length > 0 && failed.length === 0;
  if (values.trace || (isFirst && !values.all)) for (const line of trace) console.log(line);
  if (faults.length === 0) return true;
  console.log(`seed ${seed}:`);
  for (const fault of faults) console.log(`  ${fault}`);
  failed.push(seed);
  return values.all;
}

/** Resolves with whether all of them came to their end. */
async function playInProcesses(): Promise<boolean> {
  const children = Array.from({ length: jobs }, (_, job) =>
    fork(process.argv[1]!, [...process.argv.slice(2), '--job', String(job)]),
  );
  let isStopped = false;
  for (const child of children)
    child.on('message', (outcome) => {
      if (isStopped || note(outcome as Outcome)) return;
      isStopped = true;
      for (const other of children) other.kill();
    });
  const ends = await Promise.all(children.map((child) => once(child, 'exit')));
  return isStopped || ends.every(([code]) => code === 0);
}

const begunMs = performance.now();
let isWhole = true;
if (values.job !== undefined) {
  // A parent that has gone wants no more.
  process.on('disconnect', () => process.exit(1));
  process.on('SIGTERM', () => process.exit(1));
  await playShare(from + Number(values.job), (outcome) => process.send!(outcome));
  process.exit(0);
} else if (jobs === 1) await playShare(from, note);
else isWhole = await playInProcesses();
const seconds = (performance.now() - begunMs) / 1_000;
const each = (all: number, digits: number): string => (all / sum.played).toFixed(digits);
console.log(
  `${sum.played} schedules in ${seconds.toFixed(1)} s, ${((1e6 * sum.played) / sum.cpuMicros).toFixed(1)} a second of processor time, ` +
    `${each(sum.tasks, 0)} tasks and ${each(sum.deaths, 2)} deaths each; failed: ${failed.join(', ') || 'none'}`,
);
if (!isWhole) console.log('a process ended early');
process.exit(failed.length === 0 && isWhole ? 0 : 1);
