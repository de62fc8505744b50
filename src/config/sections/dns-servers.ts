import { Resolver } from 'node:dns';
import { list, text, type Setting } from '../setting.ts';

/** Addresses, with a port unless it is 53; empty: the system's servers. */
export const dnsServers = (description: string): Setting<readonly string[]> =>
  list(
    text('address of a name server, with a port unless it is 53', { example: '192.0.2.53' }),
    { maxItems: 16, description, example: ['192.0.2.53'] },
    (servers, at, { report }) =>
      servers.map(([index, server]) => {
        try {
          new Resolver().setServers([server]);
        } catch {
          report([...at, index], 'not an address of a name server; write for example 192.0.2.53');
        }
        return server;
      }),
  );
