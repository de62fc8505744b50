/** The whole service in one process on a clock, a network and a disk that a seed decides (bench/world.md). More: `npm run world`. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { buildWorld, worldFolder } from './build.ts';
import { isOn, plants, switchedOn } from './planted.ts';
import { play, type World } from './schedule.ts';
import { makeTemplate } from './setup.ts';
import { themes, type Theme } from './story.ts';

const folder = worldFolder();
after(() => rmSync(folder, { recursive: true, force: true }));

let world: World;
before(async () => {
  const scripts = await buildWorld(folder, { plugins: [plants], fault: isOn });
  world = { scripts, folder, template: await makeTemplate(scripts, `${folder}/template`) };
});

/** Faults that the world has found in the program, as they are planted now, and a seed that finds each with its theme. */
const found: readonly (readonly [name: string, seed: number, theme: Theme, by: RegExp])[] = [
  ['waits-kept', 3, 'clocks', /batch \w+ is in_progress/],
];

test('after each schedule the ledger is right, nothing is held, and clients have what they pay for', async () => {
  const seeds = Array.from({ length: 8 }, (_, index) => [index + 1, undefined] as const);
  const ofThemes = Object.keys(themes).map((theme) => [3, theme as Theme] as const);
  let deaths = 0;
  for (const [seed, theme] of [...seeds, ...ofThemes]) {
    const played = await play(world, seed, theme);
    deaths += played.deaths;
    assert.deepEqual(played.faults, [], `seed ${seed}, ${theme ?? 'no theme'}:\n${played.trace.join('\n')}`);
  }
  assert.ok(deaths > 3, `the processes of ${seeds.length + ofThemes.length} schedules died ${deaths} times`);
});

for (const [name, seed, theme, by] of found)
  test(`seed ${seed} of ${theme} finds ${name} again (another seed, when schedules change: tests/world/find.ts)`, async () => {
    switchedOn.name = name;
    const { faults } = await play(world, seed, theme);
    switchedOn.name = undefined;
    assert.match(faults.join('\n'), by);
  });

test('a seed is played the same way again, whatever was played before', async () => {
  const first = await play(world, 7);
  await play(world, 12);
  const again = await play(world, 7);
  assert.ok(first.trace.length > 10);
  assert.deepEqual([again.trace, again.tasks], [first.trace, first.tasks]);
});
