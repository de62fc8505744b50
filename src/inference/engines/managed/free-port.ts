import { get } from 'node:http';
import { createServer } from 'node:net';

/**
 * The ports of the servers of this service, until they have ended: the system gives a port that is free now a second time before the first
 * server listens there, and who comes second would be taken for it.
 */
export class FreePorts {
  readonly #given = new Set<number>();
  readonly #find: () => Promise<number>;

  constructor(find = freePort) {
    this.#find = find;
  }

  async take(): Promise<number> {
    for (let turn = 0; turn < turnsMax; turn++) {
      const port = await this.#find();
      if (this.#given.has(port)) continue;
      this.#given.add(port);
      return port;
    }
    throw new Error('no port is free');
  }

  release(port: number): void {
    this.#given.delete(port);
  }
}

const turnsMax = 100;

/** A port of this computer that nobody listens at now. */
function freePort(): Promise<number> {
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
