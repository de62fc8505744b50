/** One schedule: what a seed makes clients, servers, the clock, the disk and the process do; then everything heals, and has to end. */
import { rmSync } from 'node:fs';

import { Backends } from './backends.ts';
import { batchesEnd, batchesOf } from './batches.ts';
import { ask } from './clients.ts';
import { daysPass } from './days.ts';
import { Host } from './host.ts';
import { faultsOf } from './invariants.ts';
import type { Scripts } from './machine.ts';
import { mishapsOf } from './mishaps.ts';
import { operatorsOf } from './operators.ts';
import { paymentsOf, redeliver } from './payments.ts';
import { readAll } from './readers.ts';
import { askAgain, requestsOf } from './requests.ts';
import { Scheduler } from './scheduler.ts';
import { config, copyOf, worldStartMs, type Template } from './setup.ts';
import { newStory, type Story, type Theme } from './story.ts';

export interface Played {
  readonly faults: readonly string[];
  readonly trace: readonly string[];
  readonly tasks: number;
  readonly deaths: number;
}

export interface World {
  readonly scripts: Scripts;
  readonly template: Template;
  /** The folder for the databases of schedules. */
  readonly folder: string;
}

export async function play({ scripts, template, folder: all }: World, seed: number, theme?: Theme): Promise<Played> {
  const scheduler = new Scheduler(seed, worldStartMs);
  const folder = `${all}/seed-${seed}`;
  const disk = copyOf(template, scheduler, folder);
  const backends = new Backends(scheduler);
  const dial = (name: string, _port: number, wire: Parameters<Backends['dial']>[1]): boolean =>
    backends.dial(name, wire);
  const host = new Host({ scheduler, scripts, disk, dial }, config);
  const story = newStory({ theme, template, scripts, scheduler, backends, disk, host });
  try {
    await scheduler.run(tell(story));
  } catch (error) {
    story.faults.push(`the world failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }
  const deaths = host.deathsMs.length;
  host.kill();
  disk.rest();
  rmSync(folder, { recursive: true, force: true });
  return { faults: story.faults, trace: scheduler.trace, tasks: scheduler.tasksRun, deaths };
}

async function tell(story: Story): Promise<void> {
  const { scheduler, host, disk, backends } = story;
  const keeper = keepUp(story);
  await host.start();
  await Promise.all([requestsOf, paymentsOf, batchesOf, operatorsOf, mishapsOf].flatMap((partOf) => partOf(story)));
  disk.heal();
  backends.isHealed = true;
  scheduler.note('healed');
  await redeliver(story);
  await batchesEnd(story);
  await comesToRest(story);
  await askAgain(story);
  await comesToRest(story);
  await readAll(story);
  story.faults.push(...(await faultsOf(story)));
  // The first day that is ever signed is the one before: a clock that jumps over days signs nothing of them.
  const isSteady = scheduler.setMostMs < 86_400_000;
  const share = story.theme === 'days' ? 1 : 0.08;
  if (story.faults.length === 0 && scheduler.chance(share) && isSteady) await daysPass(story);
  keeper.isOver = true;
  // Its end is an orderly one in some, which takes as long as its start.
  if (scheduler.chance(0.3)) await host.stop();
  scheduler.note('over');
}

/** As a supervisor does: a process that has ended is started again. */
function keepUp({ host, scheduler }: Story): { isOver: boolean } {
  const keeper = { isOver: false };
  let isStarting = false;
  host.died = () => {
    if (!isStarting) void startAgain();
  };
  const startAgain = async (): Promise<void> => {
    isStarting = true;
    while (!keeper.isOver && !host.isUp) {
      await scheduler.sleep(10 + 200 * scheduler.random());
      await host.start();
    }
    isStarting = false;
  };
  return keeper;
}

/** Nothing runs, nothing is held: the part of a schedule that shows that every hold ends. */
async function comesToRest({ host, scheduler, faults }: Story): Promise<void> {
  let last = '';
  for (let looks = 0; looks < 240; looks++) {
    await host.comesUp();
    const { body } = await ask(scheduler, host, { host: 'account', method: 'GET', path: '/metrics' });
    const figure = (name: string): string => new RegExp(`^${name} (\\S+)$`, 'm').exec(body)?.[1] ?? '?';
    const names = ['tokenhouse_requests_running', 'tokenhouse_holds_open', 'tokenhouse_held_microcents'];
    last = names.map((name) => `${name} ${figure(name)}`).join(', ');
    if (names.every((name) => figure(name) === '0')) return;
    await scheduler.sleep(500);
  }
  faults.push(`it does not come to rest: ${last}`);
}
