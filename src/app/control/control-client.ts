import { connect } from 'node:net';

import { OperationError } from '../../accounts/operation.ts';
import type { Operation, OperationAnswer } from '../../accounts/operation-kinds.ts';
import type { ReloadOutcome } from '../../config/reload-outcome.ts';
import type { ControlReply } from './control-server.ts';
import { statusRequest } from './status.ts';
import type { NotificationRequest, Reported } from './notification-request.ts';
import type { ServiceStatus } from './status.ts';

const answerTimeoutMs = 30_000;
/** New engines may have to load first; the service gives up after fifteen minutes. */
const reloadTimeoutMs = 960_000;
/** Many months of many accounts take time. */
const notifyTimeoutMs = 600_000;

/** Asks the running service to carry out an operation; `undefined` when none runs on this data folder. */
export async function askRunningService(path: string, operation: Operation): Promise<OperationAnswer | undefined> {
  const reply = await ask(path, operation, answerTimeoutMs);
  if (reply === undefined || 'answer' in reply) return reply?.answer;
  throw new Error('The running service answered something else.');
}

/** The running service's status; `undefined` when none runs on this data folder, `'other'` for another version. */
export async function askForStatus(path: string): Promise<ServiceStatus | 'other' | undefined> {
  const line = await exchange(path, `${JSON.stringify(statusRequest)}\n`, answerTimeoutMs);
  if (line === undefined) return undefined;
  const reply = JSON.parse(line) as ControlReply;
  return 'status' in reply ? reply.status : 'other';
}

/** Makes the running service read its configuration again; `undefined` when none runs on this data folder. */
export async function reloadRunningService(path: string): Promise<ReloadOutcome | undefined> {
  const reply = await ask(path, { kind: 'reload' }, reloadTimeoutMs);
  if (reply === undefined || 'reload' in reply) return reply?.reload;
  throw new Error('The running service answered something else.');
}

/** Makes the running service notify customers; `undefined` when none runs on this data folder. */
export async function notifyThroughService(path: string, input: NotificationRequest): Promise<Reported | undefined> {
  const reply = await ask(path, input, notifyTimeoutMs);
  if (reply === undefined || 'reported' in reply) return reply?.reported;
  throw new Error('The running service answered something else.');
}

type Answered = Exclude<ControlReply, { readonly refused: string } | { readonly failed: string }>;

async function ask(path: string, request: object, timeoutMs: number): Promise<Answered | undefined> {
  const line = await exchange(path, `${JSON.stringify(request)}\n`, timeoutMs);
  if (line === undefined) return undefined;
  const reply = JSON.parse(line) as ControlReply;
  if ('refused' in reply) throw new OperationError(reply.refused);
  if ('failed' in reply) throw new Error(`The running service could not do it: ${reply.failed}`);
  return reply;
}

function exchange(path: string, request: string, timeoutMs: number): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    let text = '';
    let connected = false;
    const socket = connect(path, () => {
      connected = true;
      socket.write(request);
    });
    socket
      .setEncoding('utf8')
      .setTimeout(timeoutMs, () => socket.destroy(new Error('the running service does not answer')));
    socket.on('data', (chunk: string) => {
      text += chunk;
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // No socket, or one that a killed process left behind: no service is running.
      if (!connected && (error.code === 'ENOENT' || error.code === 'ECONNREFUSED')) resolve(undefined);
      else reject(error);
    });
    socket.on('close', () =>
      text.endsWith('\n') ? resolve(text.trimEnd()) : reject(new Error('the running service ended the connection')),
    );
  });
}
