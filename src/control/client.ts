import { connect } from 'node:net';

import { OperationError } from '../accounts/operations.ts';
import type { Operation, OperationAnswer } from '../accounts/operations.ts';
import type { ControlReply } from './server.ts';

const answerTimeoutMs = 30_000;

/** Asks the running service to carry out an operation; `undefined` when none runs on this data folder. */
export async function askRunningService(path: string, operation: Operation): Promise<OperationAnswer | undefined> {
  const line = await exchange(path, `${JSON.stringify(operation)}\n`);
  if (line === undefined) return undefined;
  const reply = JSON.parse(line) as ControlReply;
  if ('answer' in reply) return reply.answer;
  if ('refused' in reply) throw new OperationError(reply.refused);
  throw new Error(`The running service could not do it: ${reply.failed}`);
}

function exchange(path: string, request: string): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    let text = '';
    let connected = false;
    const socket = connect(path, () => {
      connected = true;
      socket.write(request);
    });
    socket
      .setEncoding('utf8')
      .setTimeout(answerTimeoutMs, () => socket.destroy(new Error('the running service does not answer')));
    socket.on('data', (chunk: string) => {
      text += chunk;
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // No socket, or one that a killed process left behind: nobody is there.
      if (!connected && (error.code === 'ENOENT' || error.code === 'ECONNREFUSED')) resolve(undefined);
      else reject(error);
    });
    socket.on('close', () =>
      text.endsWith('\n') ? resolve(text.trimEnd()) : reject(new Error('the running service ended the connection')),
    );
  });
}
