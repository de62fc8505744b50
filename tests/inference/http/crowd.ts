import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { connect } from 'node:net';
import type { Socket } from 'node:net';

export interface Idler {
  readonly socket: Socket;
  received: string;
  isClosed: boolean;
}

/** Opens connections, some at a time: a backlog is not what is tested here. */
export async function openMany(
  url: string,
  count: number,
  onConnect: (socket: Socket) => void,
): Promise<readonly Idler[]> {
  const { hostname, port } = new URL(url);
  const idlers: Idler[] = [];
  const openOne = async (): Promise<void> => {
    while (idlers.length < count) {
      const socket = connect({ host: hostname, port: Number(port) });
      const idler: Idler = { socket, received: '', isClosed: false };
      idlers.push(idler);
      socket.setEncoding('latin1');
      socket.on('data', (text: string) => (idler.received += text));
      socket.on('error', () => {});
      socket.on('close', () => (idler.isClosed = true));
      await new Promise<void>((resolve) => {
        socket.once('close', resolve);
        socket.once('connect', () => {
          onConnect(socket);
          resolve();
        });
      });
    }
  };
  await Promise.all(Array.from({ length: 32 }, openOne));
  return idlers;
}

/** Until all are closed; meanwhile each says a little more, and the ordinary client asks and is answered. */
export async function outlast(idlers: readonly Idler[], more: string, ask: () => Promise<number>): Promise<number> {
  let answered = 0;
  const deadline = performance.now() + 120_000;
  while (idlers.some(({ isClosed }) => !isClosed)) {
    assert.ok(performance.now() < deadline, 'not all were closed');
    for (const { socket, isClosed } of idlers) if (!isClosed && socket.writable) socket.write(more);
    assert.equal(await ask(), 200);
    answered++;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return answered;
}

/** Open files that a process may have. */
export function openFilesMax(): number {
  if (!existsSync('/proc/self/limits')) return 1024;
  const [, soft] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
  return Number(soft ?? 1024);
}

/** Open files of a process; 0 where the system does not tell. */
export const openFiles = (pid: number): number =>
  existsSync('/proc/self/fd') ? readdirSync(`/proc/${pid}/fd`).length : 0;
