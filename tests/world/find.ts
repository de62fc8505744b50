/**
 * `node scripts/run.mjs tests/world/find.ts [--seeds N] [--minutes N] [--theme batches] [NAME…]`: which schedule is the first to find each planted fault. A
 * schedule is played without a fault first, and again with each that has not been found and whose place it came past.
 */
import { rmSync } from 'node:fs';
import { parseArgs } from 'node:util';

import { buildWorld, worldFolder } from './build.ts';
import { isOn, passed, planted, plants, switchedOn } from './planted.ts';
import { play } from './schedule.ts';
import { makeTemplate } from './setup.ts';
import { themes, type Theme } from './story.ts';

const { values, positionals } = parseArgs({
  options: {
    seeds: { type: 'string', default: '300' },
    minutes: { type: 'string', default: '1000' },
    theme: { type: 'string' },
  },
  allowPositionals: true,
});
const theme = values.theme as Theme | undefined;
if (theme !== undefined && !(theme in themes)) throw new Error(`there is no theme ${theme}`);
const folder = worldFolder();
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const scripts = await buildWorld(folder, { plugins: [plants], fault: isOn });
const world = { scripts, folder, template: await makeTemplate(scripts, `${folder}/template`) };
const lastMs = performance.now() + Number(values.minutes) * 60_000;
const open = new Map(
  planted.filter(({ name }) => positionals.length === 0 || positionals.includes(name)).map((one) => [one.name, one]),
);
const tries = new Map<string, number>();
let [seed, plays] = [0, 0];
console.log('| fault | what it is | first seed | schedules that came past | found by |\n|-|-|-:|-:|-|');
while (open.size > 0 && seed < Number(values.seeds) && performance.now() < lastMs) {
  seed++;
  passed.clear();
  switchedOn.name = undefined;
  const { faults } = await play(world, seed, theme);
  plays++;
  if (faults.length > 0) {
    console.log(`seed ${seed} fails without a fault: ${faults.join('; ')}`);
    continue;
  }
  for (const { name, what } of [...open.values()].filter((one) => passed.has(one.name))) {
    switchedOn.name = name;
    tries.set(name, (tries.get(name) ?? 0) + 1);
    const [by] = (await play(world, seed, theme)).faults;
    plays++;
    if (by === undefined) continue;
    open.delete(name);
    const ids = by.replaceAll(/\b(?:acct|key|req|batch)_\w+/g, (id) => id.split('_')[0]!).slice(0, 110);
    console.log(`| \`${name}\` | ${what} | ${seed} | ${tries.get(name)} | ${ids} |`);
  }
}
for (const [name, { what }] of open) console.log(`| \`${name}\` | ${what} | not found | ${tries.get(name) ?? 0} | |`);
console.log(`${plays} plays of ${seed} schedules`);
process.exit(open.size === 0 ? 0 : 1);
