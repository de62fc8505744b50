/** What a server that the service starts does to the service when it cannot be started, and what it leaves in the log. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
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

function open(t: TestContext, { isOwnable }: { readonly isOwnable: boolean }) {
  const folder = mkdtempSync(join(tmpdir(), 'managed-'));
  if (!isOwnable) writeFileSync(join(folder, 'servers'), 'not a folder');
  const events: ServerEvent[] = [];
  const server = new ManagedServer({
    command: (port) => ({ command: [process.execPath, '-e', program, String(port)], variables: {}, directory: folder }),
    healthPath: '/health',
    open: () => engine,
    rooms: new GpuRooms(),
    needs: { group: undefined, share: 1 },
    owned: ownedProcess(join(folder, 'servers', 'own'), new Map()),
    startsAtOnce: false,
    startTimeoutMs: 20_000,
    idleMs: 10,
    sleeps: true,
    keepsOutput: true,
    onEvent: (event) => events.push(event),
  });
  t.after(async () => {
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const demand = { waiting: 1, offer: () => void server.summon(demand) };
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
