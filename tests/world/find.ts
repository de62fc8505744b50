/** `node scripts/run.mjs tests/world/find.ts [--seeds N] [NAME…]`: how many schedules it takes to find each planted fault. */
import { rmSync } from 'node:fs';
import { parseArgs } from 'node:util';

import { buildWorld, worldFolder } from './build.ts';
import { planted, plants, switchedOn } from './planted.ts';
import { play } from './schedule.ts';
import { makeTemplate } from './setup.ts';

const { values, positionals } = parseArgs({
  options: { seeds: { type: 'string', default: '300' } },
  allowPositionals: true,
});
const folder = worldFolder();
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const scripts = await buildWorld(folder, { plugins: [plants], fault: (name) => switchedOn.name === name });
const world = { scripts, folder, template: await makeTemplate(scripts, `${folder}/template`) };
console.log('| fault | what it is | first seed | found by |\n|-|-|-:|-|');
let missed = 0;
for (const { name, what } of planted) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  switchedOn.name = name;
  let seed = 0;
  let by: string | undefined;
  while (by === undefined && seed < Number(values.seeds)) by = (await play(world, ++seed)).faults[0];
  if (by === undefined) missed++;
  const ids = by?.replaceAll(/\b(?:acct|key|req|batch)_\w+/g, (id) => id.split('_')[0]!).slice(0, 110);
  console.log(`| \`${name}\` | ${what} | ${by === undefined ? 'not found' : seed} | ${ids ?? ''} |`);
}
process.exit(missed === 0 ? 0 : 1);
