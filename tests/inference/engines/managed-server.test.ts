/** What a server that the service starts does to the service when it cannot be started, and what it leaves in the log. */
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { GenerationBatch, TakeBatch } from '../../../src/generation/event.ts';
import type { EngineRequest } from '../../../src/generation/request.ts';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import { FreePorts } from '../../../src/inference/engines/managed/free-port.ts';
import { GpuRooms } from '../../../src/inference/engines/managed/gpu-rooms.ts';
import { ManagedEngine } from '../../../src/inference/engines/managed/managed-engine.ts';
import {
  ManagedServer,
  type ManagedServerOptions,
  type ServerEvent,
} from '../../../src/inference/engines/managed/managed-server.ts';
import { ownedProcess } from '../../../src/inference/engines/managed/owned-processes.ts';
import { ServerShare } from '../../../src/inference/engines/managed/server-share.ts';
import { smallRequest } from '../../../src/inference/engines/small-request.ts';
import { ApiError } from '../../../src/platform/errors.ts';
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

const shareOf = (folder: string, group: string | undefined, share?: number): ServerShare =>
  new ServerShare({ group, share, file: join(folder, 'own.memory'), commandHash: 'command' });

const options = (folder: string, events: ServerEvent[]): Omit<ManagedServerOptions, 'rooms'> => ({
  command: (port) => ({ command: [process.execPath, '-e', program, String(port)], variables: {}, directory: folder }),
  healthPath: '/health',
  ports: new FreePorts(),
  share: shareOf(folder, undefined),
  owned: ownedProcess(join(folder, 'servers', 'own'), new Map()),
  startsAtOnce: false,
  startTimeoutMs: 20_000,
  sleeps: false,
  keepsOutput: true,
  onEvent: (event) => events.push(event),
});

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
    ...options(folder, events),
    rooms: rooms ?? new GpuRooms(),
    share: shareOf(folder, rooms && 'gpu', 1),
    startsAtOnce,
    ...(rooms === undefined && { idleMs: 10 }),
    sleeps: rooms === undefined,
  });
  server.join(() => engine);
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

test('the cause of a failed start is read also where a long traceback of another process follows', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'managed-'));
  const events: ServerEvent[] = [];
  const frames = (name: string): string =>
    `  File "/usr/lib/${name}.py", line 1, in run\n    run()\n    ^^^^^\n`.repeat(40);
  const said = [
    `Traceback (most recent call last):\n${frames('core')}ValueError: 21.46 GiB KV cache is needed`,
    `Traceback (most recent call last):\n${frames('server')}RuntimeError: Engine core failed. See root cause above.`,
  ].join('\n');
  const server = new ManagedServer({
    ...options(folder, events),
    rooms: new GpuRooms(),
    command: () => ({
      command: ['/bin/sh', '-c', 'printf "%s\\n" "$0" >&2; exit 1', said],
      variables: {},
      directory: folder,
    }),
  });
  t.after(async () => {
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  server.summon({ waiting: 1, isRecent: true, offer: () => {} });
  const failed = () => events.find((event) => event.event === 'failed');
  await until(() => failed() !== undefined);
  assert.deepEqual(failed()?.output.split('\n'), [
    'Traceback (most recent call last):',
    'ValueError: 21.46 GiB KV cache is needed',
    'Traceback (most recent call last):',
    'RuntimeError: Engine core failed. See root cause above.',
  ]);
});

describe('a server that lines of batches ask for', () => {
  const lines = { waiting: 0, isRecent: false, offer: () => {} };
  const ready = (server: ManagedServer) => until(() => server.isServing);
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
        // It was looked at what it holds.
        if (other !== 'loading') await until(() => theirs.server.isServing && theirs.server.isIdle);
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
      assert.equal(!own.server.isServing, !isRecent, 'it takes no more lines');
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

describe('a server that answers its pages while a request gets nothing', () => {
  const timeout = (): ApiError => new ApiError('backend_timeout', 'It did not answer in time.');
  const full = (): ApiError => new ApiError('backend_at_capacity', 'All slots are in use.');
  const said: GenerationBatch = [{ type: 'start', promptTokens: 1 }];
  type Small = 'nothing' | 'tokens' | 'refusal' | 'nothing, others get some';
  const cases: readonly (readonly [Small, boolean])[] = [
    ['nothing', true],
    ['tokens', false],
    ['refusal', false],
    ['nothing, others get some', false],
  ];
  for (const [small, hangs] of cases)
    test(`${hangs ? 'is stopped' : 'stays'} where a small request beside it gets ${small}`, async (t) => {
      const folder = mkdtempSync(join(tmpdir(), 'managed-'));
      const events: ServerEvent[] = [];
      let asked = 0;
      const tokens = new EventEmitter();
      const writing = {
        ...engine,
        generate: async ({ cacheScope }: EngineRequest, signal: AbortSignal, take: TakeBatch) => {
          if (cacheScope !== 'probe' && asked++ === 0) throw timeout();
          // The second one: it gets a token whenever the test says so.
          if (cacheScope !== 'probe') return void tokens.on('token', () => void take(said));
          if (small === 'tokens') return void take(said);
          if (small === 'refusal') throw full();
          if (small !== 'nothing') tokens.emit('token');
          await once(signal, 'abort');
          throw signal.reason as Error;
        },
      } as unknown as Engine;
      const managed = new ManagedEngine({
        ...{ name: 'm', open: () => writing, startTimeoutMs: 20_000, tells: true },
        managed: new ManagedServer({ ...options(folder, events), rooms: new GpuRooms(), writingPatienceMs: 200 }),
      });
      t.after(async () => {
        await managed.close();
        rmSync(folder, { recursive: true, force: true });
      });
      managed.summon({ waiting: 1, isRecent: true, offer: () => {} }, false);
      await until(() => managed.status().state === 'ready');
      const request = smallRequest();
      const ask = (): Promise<void> =>
        managed.generate({ ...request, cacheScope: 'account' }, new AbortController().signal, () => true);
      const pid = managed.server?.pid;
      const first = ask();
      await Promise.all([assert.rejects(first, { code: 'backend_timeout' }), ask()]);
      if (hangs) await until(() => events.some(({ event }) => event === 'failed'));
      else await delay(500);
      const failed = events.find((event) => event.event === 'failed');
      assert.deepEqual(
        [failed?.pid, failed?.reason],
        hangs ? [pid, 'it answered, but wrote nothing any more, and was stopped'] : [undefined, undefined],
      );
      assert.equal(managed.server?.pid === pid, !hangs);
    });
});
