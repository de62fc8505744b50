/** The port of a server that the service starts: two that start at once, and ports that others have. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { createServer as createWebServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import { FreePorts } from '../../../src/inference/engines/managed/free-port.ts';
import { GpuRooms } from '../../../src/inference/engines/managed/gpu-rooms.ts';
import { ManagedServer, type ServerEvent } from '../../../src/inference/engines/managed/managed-server.ts';
import { ownedProcess } from '../../../src/inference/engines/managed/owned-processes.ts';
import { ServerShare } from '../../../src/inference/engines/managed/server-share.ts';
import { until } from '../../support/service.ts';

const program = `require('node:http').createServer((request, response) => response.end()).listen(Number(process.argv[1]), '127.0.0.1');`;
const engine = {
  status: () => ({ state: 'ready' }),
  look: () => Promise.resolve('answered'),
  close: () => Promise.resolve(),
} as unknown as Engine;

/** Servers whose ports are `found`, in this order; the last one again and again. `fixed`: one listens there whatever it is given. */
function serversAt(t: TestContext, ports: FreePorts, count: number, fixed?: number) {
  const folder = mkdtempSync(join(tmpdir(), 'managed-'));
  const rooms = new GpuRooms();
  const all = Array.from({ length: count }, (_, index) => {
    const events: ServerEvent[] = [];
    const server = new ManagedServer({
      command: (port) => ({
        ...{ command: [process.execPath, '-e', program, String(fixed ?? port)], variables: {}, directory: folder },
      }),
      ...{ healthPath: '/', ports, rooms, owned: ownedProcess(join(folder, String(index)), new Map()) },
      share: new ServerShare({ ...{ group: undefined, share: undefined, file: join(folder, 'm'), commandHash: '' } }),
      ...{ startsAtOnce: false, startTimeoutMs: 20_000, sleeps: false, keepsOutput: true },
      onEvent: (event) => events.push(event),
    });
    server.join(() => engine);
    const portsOf = (kind: 'starting' | 'ready') => events.flatMap((each) => (each.event === kind ? [each.port] : []));
    return { server, events, portsOf };
  });
  t.after(async () => {
    await Promise.all(all.map(({ server }) => server.close()));
    rmSync(folder, { recursive: true, force: true });
  });
  const ask = (index: number): void => {
    const { server } = all[index]!;
    const demand = { waiting: 1, isRecent: true, offer: () => void server.summon(demand) };
    server.summon(demand);
  };
  return { all, ask };
}

/** A port at which a stranger answers 200, until the test has ended. */
async function strangersPort(t: TestContext): Promise<number> {
  const stranger = createWebServer((request, response) => response.end()).listen(0, '127.0.0.1');
  await once(stranger, 'listening');
  t.after(() => stranger.close());
  return (stranger.address() as AddressInfo).port;
}

/** A port whose last connection this side has closed. */
async function portInTimeWait(): Promise<number> {
  const server = createServer((socket) => socket.end()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = connect(port, '127.0.0.1');
  client.resume();
  await once(client, 'close');
  server.close();
  await once(server, 'close');
  return port;
}

const inOrder = (...found: readonly (number | (() => Promise<number>))[]) => {
  let at = 0;
  return async (): Promise<number> => {
    const next = found[Math.min(at++, found.length - 1)]!;
    return typeof next === 'number' ? next : await next();
  };
};
const free = async (): Promise<number> => {
  const ports = new FreePorts();
  return await ports.take();
};

describe('two that start at once', () => {
  test('get a port each, although the system names one twice', async (t) => {
    const port = await free();
    const { all, ask } = serversAt(t, new FreePorts(inOrder(port, port, port, free)), 2);
    ask(0);
    ask(1);
    await until(() => all.every(({ server }) => server.isServing));
    const [first, second] = all.map(({ portsOf }) => portsOf('ready')[0]);
    assert.notEqual(first, second);
    assert.ok(all.every(({ server }) => server.counts.failures === 0));
  });

  test('at one fixed port: one serves, and the other one is not taken for ready by its answers', async (t) => {
    const { all, ask } = serversAt(t, new FreePorts(), 2, await free());
    ask(0);
    await until(() => all[0]!.server.counts.starts === 1);
    ask(1);
    await until(() => all.some(({ events }) => events.some(({ event }) => event === 'failed')));
    assert.ok(all.filter(({ server }) => server.isServing).length <= 1);
    const failed = all.flatMap(({ events }) => events).find((each) => each.event === 'failed');
    assert.match(failed!.output, /EADDRINUSE/);
  });
});

test('a port that was released is given again', async () => {
  const ports = new FreePorts(() => Promise.resolve(4_000));
  assert.equal(await ports.take(), 4_000);
  await assert.rejects(ports.take(), /no port is free/);
  ports.release(4_000);
  assert.equal(await ports.take(), 4_000);
});

test('a stranger has taken it meanwhile: it fails, and is started at another one', async (t) => {
  const taken = await strangersPort(t);
  const { all, ask } = serversAt(t, new FreePorts(inOrder(taken, free)), 1);
  ask(0);
  await until(() => all[0]!.server.isServing);
  assert.equal(all[0]!.portsOf('starting')[0], taken);
  assert.ok(!all[0]!.portsOf('ready').includes(taken));
  assert.match(all[0]!.events.find((each) => each.event === 'failed')!.output, /EADDRINUSE/);
});

test('a port in TIME_WAIT serves', async (t) => {
  const port = await portInTimeWait();
  const { all, ask } = serversAt(t, new FreePorts(inOrder(port)), 1);
  ask(0);
  await until(() => all[0]!.server.isServing);
  assert.deepEqual([all[0]!.portsOf('ready'), all[0]!.server.counts.failures], [[port], 0]);
});
