/** What a server that the service starts does to the service when it cannot be started, and what it leaves in the log. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import { GpuRooms } from '../../../src/inference/engines/managed/gpu-rooms.ts';
import { ManagedServer, type ServerEvent } from '../../../src/inference/engines/managed/managed-server.ts';
import { ownedProcess } from '../../../src/inference/engines/managed/owned-processes.ts';
import { until } from '../../support/service.ts';

/** Answers 200, says something private with its first request, and does not wake up. */
const program = `
  require('node:http').createServer((request, response) => {
    if (request.url.startsWith('/sleep')) console.log('a prompt of a client');
    response.writeHead(request.url === '/wake_up' ? 500 : 200).end();
  }).listen(Number(process.argv[1]), '127.0.0.1');`;

const engine = {
  status: () => ({ state: 'ready' }),
  look: () => Promise.resolve('answered'),
  close: () => Promise.resolve(),
} as unknown as Engine;

interface Opened {
  readonly isOwnable: boolean;
  /** The servers that share a GPU, with its word; alone when left out. */
  readonly rooms?: GpuRooms;
  readonly startsAtOnce?: boolean;
}

function open(t: TestContext, { isOwnable, rooms, startsAtOnce = false }: Opened) {
  const folder = mkdtempSync(join(tmpdir(), 'managed-'));
  if (!isOwnable) writeFileSync(join(folder, 'servers'), 'not a folder');
  const events: ServerEvent[] = [];
  const server = new ManagedServer({
    command: (port) => ({ command: [process.execPath, '-e', program, String(port)], variables: {}, directory: folder }),
    healthPath: '/health',
    open: () => engine,
    rooms: rooms ?? new GpuRooms(),
    needs: { group: rooms && 'gpu', share: 1 },
    owned: ownedProcess(join(folder, 'servers', 'own'), new Map()),
    startsAtOnce,
    startTimeoutMs: 20_000,
    ...(rooms === undefined && { idleMs: 10 }),
    sleeps: rooms === undefined,
    keepsOutput: true,
    onEvent: (event) => events.push(event),
  });
  t.after(async () => {
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const demand = { waiting: 1, isRecent: true, offer: () => void server.summon(demand) };
  const failures = () => events.filter((each) => each.event === 'failed');
  return { server, demand, events, failures };
}

test('a server whose process cannot be noted fails as one that ends does, and the service goes on', async (t) => {
  const { server, demand, failures } = open(t, { isOwnable: false });
  assert.ok(server.summon(demand));
  await until(() => failures().length >= 2);
  assert.match(failures()[0]!.reason, /^it cannot be started \((ENOTDIR|EEXIST)\)$/);
  assert.ok(!server.summon(demand), 'nobody waits for it');
});

test('what a server wrote after it had been ready is not in the log, also where it fails to wake', async (t) => {
  const { server, demand, events, failures } = open(t, { isOwnable: true });
  assert.ok(server.summon({ ...demand, waiting: 0 }));
  await until(() => events.some(({ event }) => event === 'asleep'));
  assert.ok(server.summon(demand));
  await until(() => failures().length > 0);
  assert.equal(failures()[0]!.reason, 'it did not wake up');
  assert.equal(failures()[0]!.output, '');
});

describe('a server that lines of batches ask for', () => {
  const lines = { waiting: 0, isRecent: false, offer: () => {} };
  const ready = (server: ManagedServer) => until(() => server.state === 'ready' && server.engine !== undefined);
  type Other = 'absent' | 'used' | 'busy' | 'unused' | 'unused, at_start' | 'loading';
  const cases: readonly (readonly [Other, boolean])[] = [
    ['absent', true],
    ['used', false],
    ['busy', false],
    ['loading', false],
    ['unused', true],
    ['unused, at_start', false],
  ];
  for (const [other, starts] of cases)
    test(`${starts ? 'starts' : 'does not start'} where the other server of its GPU is ${other}`, async (t) => {
      const rooms = new GpuRooms();
      const own = open(t, { isOwnable: true, rooms });
      const theirs = open(t, { isOwnable: true, rooms, startsAtOnce: other === 'unused, at_start' });
      if (other !== 'absent') {
        theirs.server.summon({ ...theirs.demand, waiting: other === 'loading' ? 1 : 0 });
        if (other !== 'loading') await ready(theirs.server);
        if (other === 'busy') theirs.server.began();
        theirs.server.usedMs = performance.now() - (other === 'used' ? 50_000 : 70_000);
      }
      assert.deepEqual([own.server.isSpare, own.server.summonForLine(lines)], [starts, starts]);
      if (starts) await ready(own.server);
      else if (other !== 'loading') assert.equal(theirs.server.state, 'ready');
      assert.equal(own.server.counts.starts, starts ? 1 : 0);
    });

  for (const [name, isRecent] of [
    ['gives way to a request for the other as soon as its lines have ended', false],
    ['has its turn once requests came for it too', true],
  ] as const)
    test(name, async (t) => {
      const rooms = new GpuRooms();
      const own = open(t, { isOwnable: true, rooms });
      const other = open(t, { isOwnable: true, rooms });
      assert.ok(own.server.summonForLine({ ...lines, isRecent }));
      await ready(own.server);
      own.server.began();
      assert.ok(other.server.summon(other.demand));
      assert.equal(own.server.engine === undefined, !isRecent, 'it takes no more lines');
      assert.equal(other.server.counts.starts, 0, 'what runs is finished');
      if (isRecent) return;
      own.server.over();
      await ready(other.server);
    });

  test('gives way at once while it starts', async (t) => {
    const rooms = new GpuRooms();
    const own = open(t, { isOwnable: true, rooms });
    const other = open(t, { isOwnable: true, rooms });
    assert.ok(own.server.summonForLine(lines));
    assert.ok(other.server.summon(other.demand));
    await ready(other.server);
    assert.equal(own.server.state, 'stopped');
    assert.ok(!own.server.summonForLine(lines), 'nobody waits for it');
  });
});
