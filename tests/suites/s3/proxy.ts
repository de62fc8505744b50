import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

import type { S3Server } from './s3-server.ts';

export interface Proxy {
  readonly listener: Server;
  readonly url: string;
  /** From now on nothing is passed on, and connections stay. */
  hold(): void;
  passOn(): void;
}

/** Passes connections on to the server; `onBytes` hears how many bytes have gone each way. */
export async function proxyTo(server: S3Server, onBytes: (sent: number, received: number) => void): Promise<Proxy> {
  let [sent, received] = [0, 0];
  let isHeld = false;
  const clients = new Set<Socket>();
  const listener = createServer((client) => {
    const upstream = connect(Number(new URL(server.url).port), '127.0.0.1');
    clients.add(client);
    client.on('close', () => clients.delete(client));
    client.on('data', (chunk) => {
      onBytes((sent += chunk.length), received);
      upstream.write(chunk);
      if (isHeld) client.pause();
    });
    upstream.on('data', (chunk) => onBytes(sent, (received += chunk.length)));
    client.on('error', () => upstream.destroy());
    client.on('end', () => upstream.end());
    upstream.on('error', () => client.destroy());
    upstream.pipe(client);
    if (isHeld) client.pause();
  });
  await new Promise<void>((resolve) => void listener.listen(0, '127.0.0.1', resolve));
  return {
    listener,
    url: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    hold: () => {
      isHeld = true;
      for (const client of clients) client.pause();
    },
    passOn: () => {
      isHeld = false;
      for (const client of clients) client.resume();
    },
  };
}
