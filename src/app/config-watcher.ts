import type { Config } from '../config/config.ts';
import type { ReloadOutcome } from '../config/reload-outcome.ts';
import { watchFile } from '../config/watch.ts';
import type { ListenerLimits } from '../platform/http/listener.ts';
import type { AddressRanges } from '../platform/ip/ranges.ts';
import type { Log } from '../platform/log.ts';
import type { ConfigReading } from '../platform/metrics/service-readings.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import { Discovery } from './discovery/discovery.ts';
import { openSource } from './discovery/open-source.ts';
import type { SourceStatus } from './discovery/source-servers.ts';
import { listenerLimitsOf, trustedProxiesOf } from './listening.ts';
import { Reloader } from './reload.ts';
import type { ReloadServices } from './reload.ts';

/** The configuration in force: its file is read again when it changes, and the account host's settings follow. */
export interface ConfigWatcher {
  readonly config: () => Config;
  readonly reading: () => ConfigReading;
  readonly reload: () => Promise<ReloadOutcome>;
  /** Updated in place on reload. */
  readonly listener: ListenerLimits;
  readonly trustedProxies: () => AddressRanges | undefined;
  readonly sources: () => readonly SourceStatus[];
  /** Opens the sources of backends. Resolves when those that answer in time are in force; the others follow. */
  begin(): Promise<void>;
  /** Stops watching the file; resolves when no configuration is being taken over. Idempotent. */
  close(): Promise<void>;
}

export function followConfiguration(options: {
  readonly config: Config;
  readonly readConfig: (running: Config) => Config;
  readonly configFile: string;
  readonly prepare: ReloadServices['prepare'];
  readonly repositories: Pick<Repositories, 'listAddedBackends'>;
  readonly now: () => number;
  readonly log: Log;
}): ConfigWatcher {
  const { config, readConfig, log } = options;
  const listener = listenerLimitsOf(config.server.limits);
  let trustedProxies = trustedProxiesOf(config.server);
  const discovery = new Discovery({
    open: (model, source, reader) => openSource(model, source, reader, options.repositories),
    log,
    now: options.now,
    changed: () => void reloader.refresh(),
  });
  const reloader: Reloader = new Reloader(config, {
    read: readConfig,
    log,
    discovery,
    prepare: async (next, signal) => {
      const prepared = await options.prepare(next, signal);
      return {
        ...prepared,
        commit: async () => {
          listener.readerStallMs = next.server.limits.readerStallTimeoutMs;
          trustedProxies = trustedProxiesOf(next.server);
          await prepared.commit();
        },
      };
    },
  });
  const watched = watchFile(options.configFile, () => void reloader.reload());
  return {
    config: () => reloader.config,
    reading: () => ({ version: reloader.version, failures: reloader.failures, lastSuccess: reloader.lastSuccess }),
    reload: async () => {
      watched.note();
      return await reloader.reload();
    },
    listener,
    trustedProxies: () => trustedProxies,
    sources: () => discovery.statuses,
    begin: () => reloader.begin(),
    close: async () => {
      watched.close();
      discovery.close();
      await reloader.stop();
    },
  };
}
