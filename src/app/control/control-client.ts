import { connect } from 'node:net';

import { OperationError } from '../../accounts/operation.ts';
import type { OperationAnswer, OperationKind, OperationRequest } from '../../accounts/operations.ts';
import type { ControlReply } from './control-server.ts';
import { serviceRequests } from './service-requests.ts';
import type { ServiceAnswer, ServiceRequest, ServiceRequestKind } from './service-requests.ts';
import type { ServiceStatus } from './status.ts';

const operationTimeoutMs = 30_000;

/** Asks the running service to carry out an operation; `undefined` if none is running on this data folder. */
export async function askRunningService<Kind extends OperationKind>(
  path: string,
  operation: OperationRequest<Kind>,
): Promise<OperationAnswer<Kind> | undefined> {
  return (await ask(path, operation, operationTimeoutMs)) as OperationAnswer<Kind> | undefined;
}

/** Sends another request to the running service; `undefined` if none is running on this data folder. */
export async function askService<Kind extends ServiceRequestKind>(
  path: string,
  request: ServiceRequest<Kind>,
): Promise<ServiceAnswer<Kind> | undefined> {
  const { timeoutMs } = serviceRequests[request.kind];
  return (await ask(path, request, timeoutMs)) as ServiceAnswer<Kind> | undefined;
}

/** The running service's status; `undefined` if none is running on this data folder, `'other'` for another version. */
export async function askForStatus(path: string): Promise<ServiceStatus | 'other' | undefined> {
  const kind = 'service_status';
  const reply = await exchange(path, { kind }, serviceRequests[kind].timeoutMs);
  if (reply === undefined) return undefined;
  return 'answer' in reply ? (reply.answer as ServiceStatus) : 'other';
}

async function ask(path: string, request: object, timeoutMs: number): Promise<unknown> {
  const reply = await exchange(path, request, timeoutMs);
  if (reply === undefined) return undefined;
  if ('refused' in reply) throw new OperationError(reply.refused);
  if ('failed' in reply) throw new Error(`The running service failed to do this: ${reply.failed}`);
  return reply.answer;
}

async function exchange(path: string, request: object, timeoutMs: number): Promise<ControlReply | undefined> {
  const line = await exchangeLines(path, `${JSON.stringify(request)}\n`, timeoutMs);
  return line === undefined ? undefined : (JSON.parse(line) as ControlReply);
}

function exchangeLines(path: string, request: string, timeoutMs: number): Promise<string | undefined> {
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
