import type { ListedAdapter } from './listed-adapters.ts';

/** Why an adapter could not be loaded, in words for an operator. */
export type LoadProblem =
  | 'the server does not answer'
  | 'the server loads no adapters while it runs: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True'
  | 'the folder does not have it'
  | 'the server refuses it: its own log says why';

/** How a server is told to load; each engine there has connections of its own. */
export interface LoadingServer {
  /** Returns the status of the answer and its body; rejects without an answer. */
  post(route: '/load_lora_adapter' | '/unload_lora_adapter', body: object): Promise<{ status: number; body: unknown }>;
  /** `undefined`: it does not say. */
  list(): Promise<readonly ListedAdapter[] | undefined>;
}

/** One line of the log. `unloaded`: which ones have made room for it. */
export type LoadEvent =
  | { readonly event: 'loaded'; readonly adapter: string; readonly ms: number; readonly unloaded: string }
  | { readonly event: 'failed'; readonly adapter: string; readonly reason: LoadProblem };

export interface AdapterLoaderOptions {
  /** The folder on the server that has the adapters, each in a folder with its name. */
  readonly folder: string;
  /** How many of them are loaded at the same time. */
  readonly loadedMax: number;
  readonly onEvent?: (event: LoadEvent) => void;
  /** How long one stays at least that always has requests, while another one waits. */
  readonly turnMs?: number;
  /** How long one that could not be loaded is left alone at first, and at most. */
  readonly pauseMs?: number;
  readonly pauseMsMax?: number;
}

interface Loaded {
  /** Requests that it has here. */
  running: number;
  readonly sinceMs: number;
}

interface Failed {
  readonly problem: LoadProblem;
  readonly untilMs: number;
  readonly pauseMs: number;
}

/**
 * Loads adapters into one running server when requests come for them, and unloads those that were not used for longest. One thing at a time:
 * what the server has is looked at before each change, because it may have been started again, or be used by others.
 *
 * One with requests may be unloaded too, after its turn: what the server has begun with it, it ends with it.
 */
export class AdapterLoader {
  readonly #options: AdapterLoaderOptions;
  /** Those from the folder, the least recently used first. */
  readonly #loaded = new Map<string, Loaded>();
  /** Those that the server was started with from elsewhere: they stay. */
  #foreign: ReadonlySet<string> = new Set();
  readonly #failed = new Map<string, Failed>();
  readonly #loading = new Map<string, Promise<LoadProblem | undefined>>();
  #last: Promise<unknown> = Promise.resolve();
  #onIdle: (() => void) | undefined;

  constructor(options: AdapterLoaderOptions) {
    this.#options = options;
  }

  has(name: string): boolean {
    return this.#loaded.has(name) || this.#foreign.has(name);
  }

  /** Why it is not tried now; `undefined`: it is there, or may be tried. */
  problem(name: string): LoadProblem | undefined {
    const failed = this.#failed.get(name);
    return failed !== undefined && failed.untilMs > performance.now() ? failed.problem : undefined;
  }

  /** A request begins with it; returns false if it has to be loaded first. Each `begin` that returns true has an `end`. */
  begin(name: string): boolean {
    const loaded = this.#loaded.get(name);
    if (loaded === undefined) return this.#foreign.has(name);
    this.#loaded.delete(name);
    this.#loaded.set(name, loaded);
    loaded.running++;
    return true;
  }

  end(name: string): void {
    const loaded = this.#loaded.get(name);
    if (loaded === undefined || loaded.running === 0) return;
    if (--loaded.running === 0) this.#onIdle?.();
  }

  /** The server does not know its name any more. */
  lost(name: string): void {
    this.#loaded.delete(name);
    if (this.#foreign.has(name)) this.#foreign = new Set([...this.#foreign].filter((each) => each !== name));
  }

  /** Loads it, once for all who ask meanwhile; returns what stands in the way. Never rejects. */
  load(name: string, server: LoadingServer): Promise<LoadProblem | undefined> {
    const running = this.#loading.get(name);
    if (running !== undefined) return running;
    const loading = this.#last.then(() => this.#settle(name, server));
    this.#last = loading;
    this.#loading.set(name, loading);
    void loading.finally(() => this.#loading.delete(name));
    return loading;
  }

  async #settle(name: string, server: LoadingServer): Promise<LoadProblem | undefined> {
    const { onEvent, pauseMs = 2_000, pauseMsMax = 60_000 } = this.#options;
    const sinceMs = performance.now();
    const unloaded: string[] = [];
    const problem = await this.#load(name, server, unloaded).catch((): LoadProblem => 'the server does not answer');
    const failed = this.#failed.get(name);
    if (problem === undefined) {
      this.#failed.delete(name);
      const ms = Math.round(performance.now() - sinceMs);
      onEvent?.({ event: 'loaded', adapter: name, ms, unloaded: unloaded.join(', ') });
    } else {
      const nextMs = failed === undefined ? pauseMs : Math.min(pauseMsMax, 2 * failed.pauseMs);
      this.#failed.set(name, { problem, untilMs: performance.now() + nextMs, pauseMs: nextMs });
      if (failed?.problem !== problem) onEvent?.({ event: 'failed', adapter: name, reason: problem });
    }
    return problem;
  }

  async #load(name: string, server: LoadingServer, unloaded: string[]): Promise<LoadProblem | undefined> {
    const listed = await server.list();
    if (listed === undefined) return 'the server does not answer';
    this.#believe(listed);
    if (this.has(name)) return undefined;
    while (this.#loaded.size >= this.#options.loadedMax) {
      const victim = await this.#victim();
      if (victim === undefined) break;
      // From now on its next requests wait until it is loaded again.
      this.#loaded.delete(victim);
      const { status } = await server.post('/unload_lora_adapter', { lora_name: victim });
      // 404: it was not there, or the server does not unload; then it does not load either, and says so below.
      if (status !== 200 && status !== 404) return 'the server refuses it: its own log says why';
      unloaded.push(victim);
    }
    const { status, body } = await server.post('/load_lora_adapter', {
      lora_name: name,
      lora_path: pathOf(this.#options.folder, name),
    });
    if (status !== 200) return problemOf(status, body);
    this.#loaded.set(name, { running: 0, sinceMs: performance.now() });
    return undefined;
  }

  /** Takes over what the server says that it has. Those loaded by others count as just used. */
  #believe(listed: readonly ListedAdapter[]): void {
    const own = listed.filter(({ name, root }) => root === pathOf(this.#options.folder, name)).map(({ name }) => name);
    this.#foreign = new Set(listed.map(({ name }) => name).filter((name) => !own.includes(name)));
    for (const name of this.#loaded.keys()) if (!own.includes(name)) this.#loaded.delete(name);
    for (const name of own)
      if (!this.#loaded.has(name)) this.#loaded.set(name, { running: 0, sinceMs: performance.now() });
  }

  /** The least recently used one without requests, or the one whose turn is over; waits for one of them. `undefined`: there is none left. */
  async #victim(): Promise<string | undefined> {
    const { turnMs = 1_000 } = this.#options;
    for (;;) {
      const [oldest] = [...this.#loaded].toSorted(([, a], [, b]) => a.sinceMs - b.sinceMs);
      if (oldest === undefined) return undefined;
      const idle = [...this.#loaded].find(([, { running }]) => running === 0);
      if (idle !== undefined) return idle[0];
      const leftMs = oldest[1].sinceMs + turnMs - performance.now();
      if (leftMs <= 0) return oldest[0];
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs);
        this.#onIdle = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#onIdle = undefined;
    }
  }
}

const pathOf = (folder: string, name: string): string => `${folder.replace(/\/+$/, '')}/${name}`;

/** vLLM says of a folder that is not there 404, as of a route that it does not have; only the latter has no error in it. */
function problemOf(status: number, body: unknown): LoadProblem {
  if (status !== 404) return 'the server refuses it: its own log says why';
  return typeof body === 'object' && body !== null && 'error' in body
    ? 'the folder does not have it'
    : 'the server loads no adapters while it runs: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True';
}

/** The loaders of a service, one for each server: all models there share what it has room for. */
export class AdapterLoaders {
  readonly #onEvent: (server: string, event: LoadEvent) => void;
  readonly #byServer = new Map<string, { readonly loader: AdapterLoader; users: number }>();

  constructor(onEvent: (server: string, event: LoadEvent) => void = () => {}) {
    this.#onEvent = onEvent;
  }

  /** `leave` is called once, when the engine that has asked is closed. */
  join(server: string, options: Pick<AdapterLoaderOptions, 'folder' | 'loadedMax'>) {
    const key = JSON.stringify([server, options.folder, options.loadedMax]);
    const shared = this.#byServer.get(key) ?? {
      loader: new AdapterLoader({ ...options, onEvent: (event) => this.#onEvent(server, event) }),
      users: 0,
    };
    this.#byServer.set(key, shared);
    shared.users++;
    return {
      loader: shared.loader,
      leave: (): void => {
        if (--shared.users === 0) this.#byServer.delete(key);
      },
    };
  }
}

export type JoinedLoader = ReturnType<AdapterLoaders['join']>;
