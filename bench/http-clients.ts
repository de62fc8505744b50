/**
 * What reading a chunk of a paced stream costs the client's process: `Connections` (decision 006) beside undici. Processor time,
 * so that it may run on a busy machine; the server is a process of its own. `node scripts/run.mjs bench/http-clients.ts [ROUNDS]`
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Pool } from 'undici';
import { Connections } from '../src/inference/engines/openai/connections.ts';
import { say } from './command.ts';

const streams = 50;
const chunks = 64;
const event = `data: {"choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}],"usage":null}\n\n`;

/** One chunk every 20 ms for each stream, whose starts are spread out, so that each chunk is a read of its own. */
const server = `
  const event = ${JSON.stringify(event)};
  const framed = event.length.toString(16) + '\\r\\n' + event + '\\r\\n';
  require('node:http').createServer().on('connection', (socket) => socket.setNoDelay(true)).on('request', (_, answer) => {
    answer.socket.write('HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n');
    const socket = answer.socket;
    let left = ${chunks};
    const timer = setInterval(() => {
      if (left-- > 0) socket.write(framed);
      else { clearInterval(timer); socket.end('0\\r\\n\\r\\n'); }
    }, 20);
  }).listen(0, '127.0.0.1', function () { console.log(this.address().port); });
`;

type Client = () => { one(): Promise<number>; close(): Promise<void> };

async function measure(client: Client): Promise<{ readonly perChunk: number; readonly reads: number }> {
  const { one, close } = client();
  const began = process.cpuUsage();
  const answers = Array.from({ length: streams }, async (_, index) => {
    await new Promise((resolve) => setTimeout(resolve, index / 2.5));
    return await one();
  });
  const reads = (await Promise.all(answers)).reduce((sum, count) => sum + count, 0);
  const { user, system } = process.cpuUsage(began);
  await close();
  return { perChunk: (user + system) / (streams * chunks), reads };
}

const child = spawn(process.execPath, ['-e', server], { stdio: ['ignore', 'pipe', 'inherit'] });
const [port] = (await once(createInterface(child.stdout), 'line')) as [string];
const origin = `http://127.0.0.1:${port}`;

const clients: Readonly<Record<string, Client>> = {
  undici: () => {
    const pool = new Pool(origin);
    const one = async (): Promise<number> => {
      const { body } = await pool.request({ path: '/', method: 'POST', body: '{}' });
      let reads = 0;
      for await (const _ of body) reads++;
      return reads;
    };
    return { one, close: () => pool.close() };
  },
  connections: () => {
    const url = new URL(origin);
    const connections = new Connections({ url, connectTimeoutMs: 5_000, keepAliveMs: 0, requestsPerSocket: undefined });
    const text = `POST / HTTP/1.1\r\nhost: ${url.host}\r\ncontent-length: 2\r\n\r\n{}`;
    const one = (): Promise<number> =>
      new Promise((resolve, reject) => {
        let reads = 0;
        connections.send(
          { text, pieces: undefined },
          {
            onBegin: () => {},
            onHead: () => {},
            onBody: () => reads++,
            onReadEnd: () => {},
            onOver: () => resolve(reads),
            onBroken: reject,
          },
        );
      });
    return { one, close: () => Promise.resolve(connections.close(new Error('done'))) };
  },
};

const rounds = Number(process.argv[2] ?? 7);
for (const client of Object.values(clients)) await measure(client);
const found = new Map<string, number[]>(Object.keys(clients).map((name) => [name, []]));
for (let round = 0; round < rounds; round++)
  for (const [name, client] of Object.entries(clients)) {
    const { perChunk, reads } = await measure(client);
    if (reads < 0.9 * streams * chunks) throw new Error(`${name}: chunks came together, ${reads} reads`);
    found.get(name)!.push(perChunk);
  }
child.kill();
for (const [name, values] of found) {
  const sorted = values.toSorted((one, other) => one - other);
  const [least, median, most] = [sorted[0], sorted[sorted.length >> 1], sorted.at(-1)].map((value) =>
    value!.toFixed(1),
  );
  say(`${name}: ${median} µs a chunk (${least}–${most})`);
}
