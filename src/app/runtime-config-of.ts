import { createHmac } from 'node:crypto';

import type { Secret } from '../accounts/secret.ts';
import { Catalog } from '../catalog/catalog.ts';
import type { Model } from '../catalog/model.ts';
import type { Config, ModelConfig, ServerConfig } from '../config/config.ts';
import { largestBody } from '../inference/http/body-budget.ts';
import { openBackendPool } from '../inference/pipeline/backend-pool.ts';
import type { Backend, BackendPool, BackendPoolOptions } from '../inference/pipeline/backend-pool.ts';
import type { AllowedOrigins, RequestLimits, RuntimeConfig } from '../inference/pipeline/runtime-config.ts';
import type { OnCompared } from '../inference/routing/comparison.ts';
import type { OnHealth } from '../inference/routing/fleet.ts';
import { createNameResolver } from '../platform/outbound/resolver.ts';
import type { OpenBackend } from './backends.ts';
import type { BodyRoom } from './body-room.ts';
import { trustedProxiesOf } from './listening.ts';
import { modelOf } from './model-of.ts';

/** Options shared by the pools of all models. */
export interface PoolOptions {
  readonly onHealth: (modelId: string) => OnHealth<Backend>;
  readonly onCompared: (modelId: string) => OnCompared<Backend>;
  readonly prefixSalt: number;
  readonly room: BodyRoom;
  readonly weightOf: BackendPoolOptions['weightOf'];
}

/** The same in all processes that share the secret. */
export const prefixSaltOf = ({ promptCaches }: Secret): number =>
  createHmac('sha256', promptCaches).update('beginnings of prompts').digest().readUInt32LE();

/** Everything that requests read of a configuration, in one object: a request keeps the one it began with. */
export function runtimeConfigOf(
  config: Config,
  backends: readonly OpenBackend[],
  { onHealth, onCompared, prefixSalt, room, weightOf }: PoolOptions,
  before?: RuntimeConfig,
): RuntimeConfig {
  const waitMaxMs = config.server.limits.firstTokenTimeoutMs;
  return {
    catalog: new Catalog(config.models.map((model) => modelWith(model, backends))),
    limits: requestLimits(config, room),
    trustedProxies: trustedProxiesOf(config.server),
    allowedOrigins: allowedOrigins(config.server),
    images: {
      rules: {
        fetches: config.images.fetches,
        allowedHosts: new Set(config.images.allowedHosts),
        ownHosts: new Set(ownHosts(config)),
      },
      resolver: createNameResolver(config.images.dnsServers),
    },
    pools: new Map(
      config.models.map(({ id, tiers }) => {
        const own = backends.filter((backend) => backend.modelId === id);
        const earlier = before?.pools.get(id);
        const stays = earlier !== undefined && (hasThose(earlier, own) || earlier.become(own));
        const heard = { onHealth: onHealth(id), onCompared: onCompared(id) };
        const options = { waitMaxMs, weightOf, before: earlier, ...heard, prefixSalt };
        const pool = stays ? earlier : openBackendPool(own, options);
        pool.idle.reservedSlots = tiers?.priority?.reservedSlots ?? 0;
        return [id, pool];
      }),
    ),
  };
}

/** The console's pages come from the account host, and send requests to models directly. */
const allowedOrigins = ({ allowOrigins, account }: ServerConfig): AllowedOrigins => ({
  listed: new Set(
    account.console && account.publicUrl !== undefined
      ? [...allowOrigins, new URL(account.publicUrl).origin]
      : allowOrigins,
  ),
  hasConsoleBeside: account.console && account.publicUrl === undefined,
});

const hasThose = ({ backends: before }: BackendPool, backends: readonly OpenBackend[]): boolean =>
  before.length === backends.length && backends.every((backend, index) => before[index] === backend);

const ownHosts = ({ server }: Config): readonly string[] =>
  [server.inference, server.account].flatMap(({ publicUrl: url }) =>
    url === undefined ? [] : [new URL(url).hostname],
  );

const requestLimits = ({ server: { limits }, batches }: Config, room: BodyRoom): RequestLimits => ({
  batchFileBytesMax: batches.fileBytesMax,
  primeMs: limits.primeTimeoutMs,
  keepAliveMs: limits.primeTimeoutMs,
  readerStallMs: limits.readerStallTimeoutMs,
  bodyBytesMax: Math.min(limits.bodyBytesMax, largestBody(room.bytesAtStart(limits)) + 1),
  fileBytesMax: limits.bodyBytesMax,
  requestDeadlineMs: limits.requestTimeoutMs,
});

/** With the defaults of the first embedded backend's file: all of a model's backends are the same model. */
export const modelWith = (config: ModelConfig, backends: readonly OpenBackend[]): Model =>
  modelOf(
    config,
    backends.find(({ modelId, config: { engine } }) => modelId === config.id && engine === 'llama')?.fileDefaults(),
  );
