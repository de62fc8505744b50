/** The whole service in one process on a clock, a network and a disk that a seed decides (bench/world.md). More: `npm run world`. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { buildWorld, worldFolder } from './build.ts';
import { play, type World } from './schedule.ts';
import { makeTemplate } from './setup.ts';

const folder = worldFolder();
after(() => rmSync(folder, { recursive: true, force: true }));

let world: World;
before(async () => {
  const scripts = await buildWorld(folder);
  world = { scripts, folder, template: await makeTemplate(scripts, `${folder}/template`) };
});

/** Seeds that have found something, with what it was. */
const found: readonly (readonly [seed: number, what: string])[] = [
  [1023, 'a clock that was set back by an hour made the lines of batches wait for an hour'],
  [1166, 'the same'],
];

test('after each schedule the ledger is right, nothing is held, and clients have what they pay for', async () => {
  const seeds = [...Array.from({ length: 12 }, (_, index) => index + 1), ...found.map(([seed]) => seed)];
  let deaths = 0;
  for (const seed of seeds) {
    const played = await play(world, seed);
    deaths += played.deaths;
    assert.deepEqual(played.faults, [], `seed ${seed}:\n${played.trace.join('\n')}`);
  }
  assert.ok(deaths > 3, `the processes of ${seeds.length} schedules died ${deaths} times`);
});

test('a seed is played the same way again, whatever was played before', async () => {
  const first = await play(world, 7);
  await play(world, 12);
  const again = await play(world, 7);
  assert.ok(first.trace.length > 10);
  assert.deepEqual([again.trace, again.tasks], [first.trace, first.tasks]);
});
