/** What servers of one group are seen to hold decides whether they run beside each other or by turns. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import { FreePorts } from '../../../src/inference/engines/managed/free-port.ts';
import { GpuRooms } from '../../../src/inference/engines/managed/gpu-rooms.ts';
import { heldMemory, onGpus, type HeldMemory } from '../../../src/inference/engines/managed/held-memory.ts';
import { ManagedServer, type ServerEvent } from '../../../src/inference/engines/managed/managed-server.ts';
import { ownedProcess } from '../../../src/inference/engines/managed/owned-processes.ts';
import { ServerShare } from '../../../src/inference/engines/managed/server-share.ts';
import { until } from '../../support/service.ts';

const program = `
  if (process.argv[2] === 'fails') process.exit(1);
  require('node:http').createServer((request, response) => response.end()).listen(Number(process.argv[1]), '127.0.0.1');`;
const engine = {
  status: () => ({ state: 'ready' }),
  look: () => Promise.resolve('answered'),
  close: () => Promise.resolve(),
} as unknown as Engine;

interface Given {
  readonly share?: number;
  /** The part of the memory that it holds; it cannot be seen when left out. */
  readonly holds?: number;
  readonly fails?: boolean;
}

/** A group of servers, of which each is asked for by name. */
function groupOf(t: TestContext, given: Readonly<Record<string, Given>>) {
  const folder = mkdtempSync(join(tmpdir(), 'managed-'));
  const rooms = new GpuRooms();
  const ports = new FreePorts();
  const events: ServerEvent[] = [];
  const servers = new Map<string, { server: ManagedServer; share: ServerShare; holds: number | undefined }>();
  for (const [name, { share: declared, holds, fails }] of Object.entries(given)) {
    const share = new ServerShare({
      ...{ group: 'gpu', share: declared, file: join(folder, `${name}.memory`), commandHash: 'a' },
    });
    const server = new ManagedServer({
      command: (port) => ({
        command: [process.execPath, '-e', program, String(port), ...(fails === true ? ['fails'] : [])],
        ...{ variables: {}, directory: folder },
      }),
      ...{ healthPath: '/', ports, rooms, share, owned: ownedProcess(join(folder, name), new Map()), lookMs: 5 },
      ...{ startsAtOnce: false, startTimeoutMs: 20_000, sleeps: false, keepsOutput: true },
      onEvent: (event) => events.push(event),
      measure: () => {
        const { holds: now } = servers.get(name)!;
        return Promise.resolve(now === undefined ? undefined : memory(now));
      },
    });
    server.join(() => engine);
    servers.set(name, { server, share, holds });
  }
  t.after(async () => {
    await Promise.all([...servers.values()].map(({ server }) => server.close()));
    rmSync(folder, { recursive: true, force: true });
  });
  const at = (name: string) => servers.get(name)!;
  const ask = async (name: string): Promise<void> => {
    const { server } = at(name);
    const demand = { waiting: 1, isRecent: true, offer: () => void (demand.waiting = 0) };
    if (server.summon(demand)) await until(() => server.isServing);
  };
  return {
    at,
    ask,
    events,
    folder,
    running: () => [...servers].filter(([, { server }]) => server.isServing).map(([name]) => name),
  };
}

const memory = (part: number): HeldMemory => ({ on: 'gpu', bytes: part * 1_000, ofBytes: 1_000 });

describe('two servers of a group, once both were started', () => {
  const cases: readonly (readonly [string, Given, Given, boolean])[] = [
    ['that fit by what they hold', { holds: 0.3 }, { holds: 0.4 }, true],
    ['that fit exactly but for what is not seen', { holds: 0.5 }, { holds: 0.5 }, false],
    ['that do not fit', { holds: 0.6 }, { holds: 0.5 }, false],
    ['of which one cannot be seen', { holds: 0.1 }, {}, false],
    [
      'that fit by what is declared, although they hold more',
      { share: 0.5, holds: 0.7 },
      { share: 0.5, holds: 0.7 },
      true,
    ],
    ['that are declared whole, although they hold little', { share: 1, holds: 0.1 }, { share: 1, holds: 0.1 }, false],
    ['one declared, one learned', { share: 0.5, holds: 0.4 }, { holds: 0.4 }, true],
    ['one declared, one learned, and too much together', { share: 0.6, holds: 0.4 }, { holds: 0.4 }, false],
  ];
  for (const [what, a, b, isTogether] of cases)
    test(`${what}: ${isTogether ? 'beside each other' : 'by turns'}`, async (t) => {
      const { at, ask, running } = groupOf(t, { a, b });
      await ask('a');
      await until(() => at('a').share.reading?.learned !== undefined || a.holds === undefined);
      await ask('b');
      await until(() => at('b').share.reading?.learned !== undefined || b.holds === undefined);
      for (const name of ['a', 'b', 'a', 'b']) await ask(name);
      assert.deepEqual(running(), isTogether ? ['a', 'b'] : ['b']);
      // Each is started once to be seen; the first one may have had to leave for the second.
      const starts = at('a').server.counts.starts + at('b').server.counts.starts;
      assert.ok(isTogether ? starts <= 3 : starts === 6, `${starts} starts`);
    });
});

test('one that waits gets in as soon as it is seen that it fits', async (t) => {
  const { at, ask, running } = groupOf(t, { a: { holds: 0.3 }, b: { share: 0.5 } });
  await Promise.all([ask('a'), ask('b')]);
  await until(() => running().length === 2);
  assert.equal(at('a').server.counts.starts, 1);
});

test('when one grows until both do not fit any more, the idle one leaves', async (t) => {
  const { at, ask, running } = groupOf(t, { a: { holds: 0.3 }, b: { share: 0.5 } });
  await ask('a');
  await until(() => at('a').share.reading?.learned !== undefined);
  await ask('b');
  assert.deepEqual(running(), ['a', 'b']);
  at('a').server.began();
  at('a').holds = 0.8;
  await until(() => running().length === 1);
  assert.deepEqual(running(), ['a']);
});

test('one that fails beside others gets all of the group from then on', async (t) => {
  const { at, ask } = groupOf(t, { a: { holds: 0.3 }, b: { holds: 0.3, fails: true } });
  at('b').share.saw(memory(0.3));
  await ask('a');
  await until(() => at('a').share.reading?.learned !== undefined);
  const demand = { waiting: 1, isRecent: true, offer: () => void at('b').server.summon(demand) };
  at('b').server.summon(demand);
  await until(() => at('b').server.counts.failures > 1);
  assert.deepEqual([at('b').share.part, at('b').share.reading?.isDoubted], [1, true]);
  await until(() => !at('a').server.isServing);
  assert.equal(at('a').share.reading?.isDoubted, false, 'the other one has done nothing');
});

test('more than declared: said in the log, once', async (t) => {
  const { at, ask, events } = groupOf(t, { a: { share: 0.5, holds: 0.7 }, b: { share: 0.5, holds: 0.49 } });
  await ask('a');
  await ask('b');
  await until(() => at('b').share.reading?.learned !== undefined);
  const said = events.filter((each) => each.event === 'exceeds_share');
  assert.deepEqual(
    said.map(({ pid: _, ...others }) => others),
    [{ event: 'exceeds_share', group: 'gpu', share: 0.5, holds: 0.7 }],
  );
});

test('what was learned is known at the next start of the service, of the same command', async (t) => {
  const { at, folder } = groupOf(t, { a: { holds: 0.3 } });
  at('a').share.saw(memory(0.3));
  const again = { group: 'gpu', share: undefined, file: join(folder, 'a.memory') };
  const partOf = (commandHash: string): number => Number(new ServerShare({ ...again, commandHash }).part.toFixed(3));
  assert.deepEqual([partOf('a'), partOf('b')], [0.33, 1]);
  // Less is not learned: it may come again.
  at('a').share.saw(memory(0.1));
  assert.equal(partOf('a'), 0.33);
});

describe('what nvidia-smi says', () => {
  const gpus = 'GPU-a, 24564\nGPU-b, 49140\n';
  const cases: readonly (readonly [string, string, readonly [number, number] | undefined])[] = [
    ['one process', '11, GPU-a, 12282\n99, GPU-a, 4000\n', [12_282, 24_564]],
    ['several on one GPU', '11, GPU-a, 1000\n12, GPU-a, 2000\n', [3_000, 24_564]],
    ['on two GPUs, by the larger part', '11, GPU-a, 20000\n12, GPU-b, 30000\n', [20_000, 24_564]],
    ['others alone', '99, GPU-a, 4000\n', undefined],
    ['a driver that does not tell', '11, GPU-a, [N/A]\n', undefined],
    ['nothing', '', undefined],
  ];
  for (const [what, used, expected] of cases)
    test(what, () => {
      const mebibyte = 1024 ** 2;
      assert.deepEqual(
        onGpus(gpus, used, [11, 12]),
        expected && { on: 'gpu', bytes: expected[0] * mebibyte, ofBytes: expected[1] * mebibyte },
      );
    });
});

test('the memory of a real process group', async () => {
  const bytes = 150_000_000;
  const fill = `const a = Buffer.alloc(${bytes}, 1); process.stdout.write('full'); setInterval(() => a.length, 1000);`;
  const parent = `${fill} require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(fill)}], { stdio: ['ignore', 'pipe', 'ignore'] }).stdout.once('data', () => process.stdout.write('both'));`;
  const child = spawn(process.execPath, ['-e', parent], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
  let said = '';
  child.stdout.on('data', (text: Buffer) => (said += text.toString()));
  await until(() => said.includes('both'));
  const held = await heldMemory(child.pid!);
  process.kill(-child.pid!, 'SIGKILL');
  await once(child, 'close');
  assert.equal(held?.on, 'memory');
  assert.ok(held.bytes > 2 * bytes && held.bytes < 2 * bytes + 200_000_000, String(held.bytes));
  assert.ok(held.ofBytes > held.bytes);
  assert.equal(await heldMemory(child.pid!), undefined, 'it is gone');
});
