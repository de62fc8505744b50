import { get } from 'node:http';
import { createServer } from 'node:net';

/** A port of this computer that nobody listens at now. */
export function freePort(): Promise<number> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve((address as { readonly port: number }).port));
    });
  });
}

/** Whether the page answers 200 within that time. Never rejects. */
export function answersOk(url: string, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get(url, { agent: false, timeout: timeoutMs }, (answer) => {
      resolve(answer.statusCode === 200);
      answer.destroy();
    });
    request.on('timeout', () => request.destroy(new Error('no answer')));
    request.on('error', () => resolve(false));
  });
}
