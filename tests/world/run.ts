/** `npm run world -- [--seeds N] [--from S] [--minutes N]`: plays schedules, and shows the first that fails, with its trace. */
import { rmSync } from 'node:fs';
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
    theme: { type: 'string' },
    all: { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
  },
});
const theme = values.theme as Theme | undefined;
if (theme !== undefined && !(theme in themes)) throw new Error(`there is no theme ${theme}`);
const folder = worldFolder();
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const scripts = await buildWorld(folder);
const world = { scripts, folder, template: await makeTemplate(scripts, `${folder}/template`) };
const from = Number(values.from);
const begunMs = performance.now();
const begunCpu = process.cpuUsage();
const lastMs = begunMs + Number(values.minutes) * 60_000;
let played = 0;
let tasks = 0;
let deaths = 0;
const failed: number[] = [];
for (let seed = from; seed < from + Number(values.seeds) && performance.now() < lastMs; seed++) {
  const outcome = await play(world, seed, theme);
  played++;
  tasks += outcome.tasks;
  deaths += outcome.deaths;
  if (values.trace) for (const line of outcome.trace) console.log(line);
  if (outcome.faults.length === 0) continue;
  if (failed.length === 0 && !values.all) for (const line of outcome.trace) console.log(line);
  console.log(`seed ${seed}:`);
  for (const fault of outcome.faults) console.log(`  ${fault}`);
  failed.push(seed);
  if (!values.all) break;
}
const seconds = (performance.now() - begunMs) / 1_000;
const { user, system } = process.cpuUsage(begunCpu);
const cpuSeconds = (user + system) / 1e6;
console.log(
  `${played} schedules in ${seconds.toFixed(1)} s, ${(played / cpuSeconds).toFixed(1)} a second of processor time, ` +
    `${(tasks / played).toFixed(0)} tasks and ${(deaths / played).toFixed(2)} deaths each; failed: ${failed.join(', ') || 'none'}`,
);
process.exit(failed.length === 0 ? 0 : 1);
