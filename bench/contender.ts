import { once } from 'node:events';
import { createServer } from 'node:net';
import { UsageError } from './arguments.ts';

/** Something to measure: what stands between a client and the upstream. */
export interface Contender {
  readonly name: string;
  /** Makes its files in an empty folder of its own; once for every round, so that all rounds begin alike. */
  prepare(folder: string, upstreamPort: number): Promise<Prepared>;
}

export interface Prepared {
  /** How to start it; `undefined`: there is nothing in between. */
  readonly command: readonly string[] | undefined;
  readonly port: number;
  /** What clients have to say. */
  readonly key: string;
  readonly model: string;
}

/** The control: the upstream itself. */
export const direct: Contender = {
  name: 'direct',
  prepare: async (_folder, upstreamPort) => ({ command: undefined, port: upstreamPort, key: 'none', model: 'bench' }),
};

/** Another program, which has the upstream's address in its own configuration. */
export function external(line: string, upstreamPort: number): Contender {
  const [name, port, command, key, model] = line.split('|');
  if (!name || !port || !/^\d+$/.test(port) || !command || !key || !model) {
    throw new UsageError(
      `--gateway takes 'name|port|command|key|model', not '${line}'; it must forward to 127.0.0.1:${upstreamPort}`,
    );
  }
  return {
    name,
    prepare: async () => ({ command: ['sh', '-c', `exec ${command}`], port: Number(port), key, model }),
  };
}

/** A port of 127.0.0.1 that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  return address.port;
}
