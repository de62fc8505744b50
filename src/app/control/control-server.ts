import { chmodSync, unlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';

import type { TObject } from 'typebox';
import Value from 'typebox/value';

import { commandLine } from '../../accounts/actor.ts';
import { OperationError } from '../../accounts/operation.ts';
import type { OperationServices } from '../../accounts/operation.ts';
import { operate, operations } from '../../accounts/operations.ts';
import type { Operation } from '../../accounts/operations.ts';
import { serviceRequests } from './service-requests.ts';
import type { ServiceHandlers, ServiceRequestKind } from './service-requests.ts';

/** The messages on the control socket: one line of JSON each way, then the connection ends. */
export type ControlReply =
  /** Its type depends on the kind of request. */
  | { readonly answer: unknown }
  /** A request that cannot be fulfilled, with a message for display. */
  | { readonly refused: string }
  | { readonly failed: string };

export interface ControlServices {
  readonly operations: OperationServices;
  /** Handlers for requests other than operations. */
  readonly service: ServiceHandlers;
}

const requestBytesMax = 65_536;
const requestTimeoutMs = 10_000;

/**
 * Listens for the command line's writes while this process owns the database. Access to the socket gives full operator rights: it
 * has mode 0600, in a folder of mode 0700.
 */
export async function listenForControl(path: string, services: ControlServices): Promise<Server> {
  const server = createServer((socket) => void serveCommand(socket, services));
  server.maxConnections = 16;
  if (process.platform !== 'win32') removeStale(path);
  // The mask applies from the moment the socket exists; chmod afterwards would leave a gap.
  const mask = process.umask(0o177);
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject).listen(path, resolve);
    });
  } finally {
    process.umask(mask);
  }
  if (process.platform !== 'win32') chmodSync(path, 0o600);
  return server;
}

/** We hold the database's lock, so an existing socket belongs to a process that is gone. */
function removeStale(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

async function serveCommand(socket: Socket, services: ControlServices): Promise<void> {
  socket.setTimeout(requestTimeoutMs, () => socket.destroy());
  socket.on('error', () => socket.destroy());
  const line = await readLine(socket);
  if (line === undefined) {
    socket.destroy();
    return;
  }
  // Operations have their own timeouts: a new engine may take minutes to become ready.
  socket.setTimeout(0);
  const reply = await replyTo(line, services);
  socket.end(`${JSON.stringify(reply)}\n`);
}

async function replyTo(line: string, services: ControlServices): Promise<ControlReply> {
  try {
    return { answer: (await answerTo(JSON.parse(line), services)) ?? null };
  } catch (error) {
    if (error instanceof OperationError) return { refused: error.message };
    return { failed: error instanceof Error ? error.message : String(error) };
  }
}

async function answerTo(request: unknown, { operations: works, service }: ControlServices): Promise<unknown> {
  const kind: unknown = (request as { readonly kind?: unknown } | null)?.kind;
  if (isRequest(request, kind, serviceRequests)) {
    const answer: (request: never) => Promise<unknown> = service[kind as ServiceRequestKind];
    return await answer(request as never);
  }
  if (isRequest(request, kind, operations))
    return await operate(request as Operation, { ...works, actor: commandLine });
  throw new OperationError(
    'The running service does not know this operation. Restart it if its version differs from this command’s.',
  );
}

/** Whether it is a request of this table. Its other fields are ignored. */
function isRequest(
  request: unknown,
  kind: unknown,
  table: Readonly<Record<string, { readonly schema: TObject }>>,
): boolean {
  return typeof kind === 'string' && Object.hasOwn(table, kind) && Value.Check(table[kind]!.schema, request);
}

function readLine(socket: Socket): Promise<string | undefined> {
  return new Promise((resolve) => {
    let text = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => {
      text += chunk;
      const end = text.indexOf('\n');
      if (end >= 0) resolve(text.slice(0, end));
      else if (text.length > requestBytesMax) resolve(undefined);
    });
    socket.on('close', () => resolve(undefined));
  });
}
