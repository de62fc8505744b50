import type { Catalog } from '../../catalog/catalog.ts';
import type { FetchSettings } from '../images/fetcher.ts';
import type { AddressRanges } from '../../platform/ip/ranges.ts';
import { openBackendPool } from './backend-pool.ts';
import type { Backend, BackendPool } from './backend-pool.ts';

/** Sizes and times that bound a request. */
export interface RequestLimits {
  /** How long the head of a stream waits for the first token (contracts §1.0). */
  readonly primeMs: number;
  /** Silence after which a stream gets a keep-alive comment. */
  readonly keepAliveMs: number;
  /** How long a client may stop reading before its stream is cut (reliability C3). */
  readonly readerStallMs: number;
  /** Bodies of this many bytes and more are refused (specification part 8). */
  readonly bodyBytesMax: number;
  /** Maximum size of an uploaded file, which is never in memory as a whole. */
  readonly fileBytesMax: number;
  /** The same with the purpose `batch`. */
  readonly batchFileBytesMax: number;
  /** Maximum duration of a request (contracts decision 23). */
  readonly requestDeadlineMs: number;
}

/** Origins whose pages may send requests from a browser, besides those of this computer. */
export interface AllowedOrigins {
  /** `server.inference.allow_origins` in lower case, where `*` means all; and the console's, if it has an address of its own. */
  readonly listed: ReadonlySet<string>;
  /** The console has no address of its own: it is served at the account host's port, under any name of this computer. */
  readonly hasConsoleBeside: boolean;
}

/** What a configuration says about requests. Immutable: a reload creates a new one. */
export interface RuntimeConfig {
  readonly catalog: Catalog;
  readonly limits: RequestLimits;
  readonly images: FetchSettings;
  /** Proxies that may report a request's address; `undefined`: none. */
  readonly trustedProxies: AddressRanges | undefined;
  readonly allowedOrigins: AllowedOrigins;
  /** By model id. */
  readonly pools: ReadonlyMap<string, BackendPool>;
}

/** A request's lease of the runtime config that it began with, so that it never sees half of two. */
export interface Lease {
  readonly runtimeConfig: RuntimeConfig;
  poolOf(modelId: string): BackendPool;
  /** From here on only the backends of these models are used: removed backends need not wait for this request. */
  narrow(modelId: string, others?: readonly string[]): void;
  /** Called once, when the request has ended. */
  release(): void;
}

const none = openBackendPool([], { waitMaxMs: 0 });

/** One runtime config is current; earlier ones, and their backends, stay as long as requests use them. */
export class RuntimeConfigs {
  #current: Holding;
  readonly #unused: (backend: Backend) => void;
  /** Earlier runtime configs that requests still hold as a whole. */
  readonly #retired = new Set<Holding>();
  /** Number of requests that have narrowed their lease, by the list of backends they narrowed it to. */
  readonly #narrowed = new Map<readonly Backend[], number>();
  /** Backends of the current runtime config at the last swap: a pool may have changed its backends since. */
  #present: ReadonlySet<Backend>;
  /** Backends of no current model that some request may still use. */
  readonly #leaving = new Set<Backend>();

  /** `unused` is called once for each backend outside the current runtime config that no request can reach any more. */
  constructor(first: RuntimeConfig, unused: (backend: Backend) => void) {
    this.#current = { runtimeConfig: first, users: 0 };
    this.#present = new Set(backendsOf(first));
    this.#unused = unused;
  }

  get current(): RuntimeConfig {
    return this.#current.runtimeConfig;
  }

  /** Number of backends that have left the configuration and still work for earlier requests. */
  get leaving(): number {
    return this.#leaving.size;
  }

  /** Replaces the current runtime config, for every lease from now on. */
  swap(next: RuntimeConfig): void {
    const before = this.#current;
    const present = new Set(backendsOf(next));
    for (const backend of this.#present) if (!present.has(backend)) this.#leaving.add(backend);
    this.#present = present;
    this.#current = { runtimeConfig: next, users: 0 };
    if (before.users > 0) this.#retired.add(before);
    this.#sweep();
  }

  lease(): Lease {
    const holding = this.#current;
    holding.users++;
    let list: readonly Backend[] | undefined;
    const releaseWhole = (): void => {
      holding.users--;
      if (holding.users === 0) this.#retired.delete(holding);
    };
    return {
      runtimeConfig: holding.runtimeConfig,
      poolOf: (modelId) => holding.runtimeConfig.pools.get(modelId) ?? none,
      narrow: (modelId, others) => {
        if (list !== undefined) throw new Error('a lease is narrowed once');
        const backendsFor = (id: string) => (holding.runtimeConfig.pools.get(id) ?? none).backends;
        list = others === undefined ? backendsFor(modelId) : [modelId, ...others].flatMap(backendsFor);
        this.#narrowed.set(list, (this.#narrowed.get(list) ?? 0) + 1);
        releaseWhole();
        this.#sweep();
      },
      release: () => {
        if (list === undefined) releaseWhole();
        else {
          const users = (this.#narrowed.get(list) ?? 0) - 1;
          if (users > 0) this.#narrowed.set(list, users);
          else this.#narrowed.delete(list);
        }
        this.#sweep();
      },
    };
  }

  #sweep(): void {
    if (this.#leaving.size === 0) return;
    const used = new Set<Backend>([...this.#narrowed.keys()].flat());
    for (const { runtimeConfig } of this.#retired) for (const backend of backendsOf(runtimeConfig)) used.add(backend);
    for (const backend of [...this.#leaving]) {
      // A request may have been placed there after its lease was narrowed.
      if (used.has(backend) || backend.running > 0) continue;
      this.#leaving.delete(backend);
      this.#unused(backend);
    }
  }
}

const backendsOf = ({ pools }: RuntimeConfig): readonly Backend[] =>
  [...pools.values()].flatMap(({ backends }) => backends);

interface Holding {
  readonly runtimeConfig: RuntimeConfig;
  users: number;
}
