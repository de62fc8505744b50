import { lookup, Resolver } from 'node:dns/promises';

/** Finds all addresses of a name. */
export interface NameResolver {
  /**
   * Returns all current addresses of the name, of both families. Empty when it has none, or none could be found. `system` also asks
   * the operating system, which knows names of its own network. Rejects with the reason of the signal.
   */
  resolve(name: string, system: boolean, signal: AbortSignal): Promise<readonly string[]>;
}

/** How long a server may take to answer, and how often each is asked; the caller has its own timeout. */
const queryTimeoutMs = 2_000;
const queryTries = 2;

/**
 * Queries name servers directly: those of the system unless others are given. Unlike the system resolver it can be cancelled, takes
 * no thread, and uses neither search domains nor `/etc/hosts`, which have names of the local network.
 */
export function createNameResolver(servers: readonly string[]): NameResolver {
  return {
    resolve: async (name, system, signal) => {
      signal.throwIfAborted();
      const resolver = new Resolver({ timeout: queryTimeoutMs, tries: queryTries });
      if (servers.length > 0) resolver.setServers(servers);
      const cancel = (): void => resolver.cancel();
      signal.addEventListener('abort', cancel, { once: true });
      try {
        const [four, six] = await Promise.all([
          resolver.resolve4(name).catch(() => []),
          resolver.resolve6(name).catch(() => []),
        ]);
        signal.throwIfAborted();
        const found = [...four, ...six];
        return found.length > 0 || !system ? found : await systemLookup(name);
      } finally {
        signal.removeEventListener('abort', cancel);
      }
    },
  };
}

const systemLookup = async (name: string): Promise<readonly string[]> =>
  (await lookup(name, { all: true }).catch(() => [])).map(({ address }) => address);
